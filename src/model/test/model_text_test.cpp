#include "model/model_text.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "gguf_builder.h"
#include "model/source/gguf_model.h"
#include "readers/clean_message.h"

namespace heddle::model {
namespace {

using files::GgufFile;
using testing::GgufBuilder;

/// Reads all that a model file says besides its weights.
void read_all(const std::string& bytes) {
  const GgufFile file(std::as_bytes(std::span(bytes.data(), bytes.size())), "m.gguf");
  (void)GgufModel(std::as_bytes(std::span(bytes)), "m.gguf");
  const tokenizer::Tokenizer tokenizer(read_vocabulary(file));
  (void)read_end_tokens(file);
  (void)read_chat_template(file);
}

constexpr const char* kStrings[] = {"general.architecture",    "llama.rope.scaling.type",
                                    "tokenizer.ggml.model",    "tokenizer.ggml.pre",
                                    "tokenizer.chat_template", "llama.rope.freq_base",
                                    "tokenizer.ggml.tokens",   "tokenizer.ggml.merges"};

/// A file that read_all takes, but for one key, where `text` stands as its value.
std::string file_with(const std::string& changed, const std::string& text) {
  GgufBuilder builder;
  const auto string = [&](const std::string& key, std::string_view value) {
    builder.value(key, key == changed ? std::string_view(text) : value);
  };
  string("general.architecture", "llama");
  string("llama.rope.scaling.type", "none");
  string("tokenizer.ggml.model", "gpt2");
  string("tokenizer.ggml.pre", "gpt-2");
  string("tokenizer.chat_template", "{{ messages }}");
  if (changed == "llama.rope.freq_base") string("llama.rope.freq_base", "");
  for (const char* key : {"llama.block_count", "llama.context_length", "llama.feed_forward_length",
                          "llama.attention.head_count"}) {
    builder.value(key, uint32_t{1});
  }
  builder.value("llama.embedding_length", uint32_t{2});
  builder.value("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  const std::string token = changed == "tokenizer.ggml.tokens" ? text : "ab";
  const std::string merge = changed == "tokenizer.ggml.merges" ? text : "a b";
  builder.array<std::string_view>("tokenizer.ggml.tokens", {"a", "b", token});
  builder.array<std::string_view>("tokenizer.ggml.merges", {merge});
  builder.tensor("token_embd.weight", {2, 3}, 0, std::string(24, 'w'));
  return builder.build();
}

TEST(ModelText, QuotesLittleOfTheFile) {
  EXPECT_NO_THROW(read_all(file_with("", "")));
  const std::string text = testing::hostile_text(size_t{10} << 20);
  for (const char* key : kStrings) {
    const bool is_template = key == std::string("tokenizer.chat_template");
    const std::string bytes = file_with(key, is_template ? "{{ " + text + " }}" : text);
    testing::expect_clean_message(key, [&] { read_all(bytes); });
  }
}

TEST(ModelText, QuotesLittleOfAChatTemplate) {
  const std::string text = testing::hostile_text(50'000);
  const std::string name(50'000, 'n');
  for (const std::string& source : {"{{ " + text + " }}",
                                    "{% " + name + " %}",
                                    "{{ 'a' | " + name + " }}",
                                    "{{ x is " + name + " }}",
                                    "{{ " + name + "() }}",
                                    "{{ 'a'." + name + "() }}",
                                    "{{ " + name + ".a }}",
                                    "{{ {}." + name + ".a }}",
                                    "{{ 'a' | trim(" + name + "=1) }}",
                                    "{{ 'a' | trim('a', chars='" + text + "') }}",
                                    "{{ [] | map(" + name + "=1) }}",
                                    "{{ {} | dictsort(by='" + text + "') }}",
                                    "{{ [] | map('" + text + "') }}",
                                    "{{ [1] | selectattr('a', '" + text + "') }}",
                                    "{% macro " + name + "() %}{% endmacro %}{{ " + name + "(1) }}",
                                    "{% macro m() %}{% endmacro %}{{ m(" + name + "=1) }}",
                                    "{{ raise_exception('" + text + "') }}",
                                    "{{ " + std::string(50'000, '9') + " }}",
                                    "{{ 'a'['" + text + "'].b }}",
                                    "{{ 1e" + std::string(50'000, '9') + " }}"}) {
    const std::string bytes = file_with("tokenizer.chat_template", source);
    const GgufFile file(std::as_bytes(std::span(bytes.data(), bytes.size())), "m.gguf");
    const std::string message = testing::message_of([&] {
      (void)read_chat_template(file)->render({{"messages", nlohmann::ordered_json::array()}});
    });
    // Some templates have a meaning: where there is a message it is clean.
    if (message == "no error") continue;
    testing::expect_clean_message(source.substr(0, 40), [&] {
      (void)read_chat_template(file)->render({{"messages", nlohmann::ordered_json::array()}});
    });
  }
}

tokenizer::Tokenizer tiny_tokenizer() {
  tokenizer::Vocabulary vocabulary;
  vocabulary.tokens = {"a", "<s>"};
  vocabulary.types = {tokenizer::TokenType::kNormal, tokenizer::TokenType::kControl};
  vocabulary.pre_tokenizer = "gpt-2";
  vocabulary.bos = 1;
  return tokenizer::Tokenizer(std::move(vocabulary));
}

std::string render(const std::string& source, std::string_view content, int64_t max_context) {
  const ChatTurn turns[] = {{"user", content}};
  return render_chat(chat_template::ChatTemplate::parse(source), turns, tiny_tokenizer(),
                     max_context);
}

TEST(ModelText, RendersTheConversation) {
  EXPECT_EQ(render("{{ bos_token }}{{ messages[0].role }}: {{ messages[0].content }}"
                   "{{ eos_token }}{{ add_generation_prompt }}",
                   "hello", 16),
            "<s>user: helloTrue");
}

TEST(ModelText, RefusesMoreBytesThanTheContextCanHold) {
  const std::string fits(16 * kMaxChatBytesPerToken, 'a');
  EXPECT_EQ(render("{{ messages[0].content }}", fits, 16), fits);
  testing::expect_invalid({"4097 bytes", "16 tokens", "at most 4096"},
                          [&] { (void)render("{{ messages[0].content }}b", fits, 16); });
  // A template that makes much of little.
  testing::expect_invalid({"10000000 bytes", "2048 tokens", "at most 524288"},
                          [] { (void)render("{{ messages[0].content * 10000000 }}", "a", 2048); });
}

}  // namespace
}  // namespace heddle::model
