#include "model/model_text.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "gguf_builder.h"
#include "model/source/gguf_model.h"
#include "readers/clean_message.h"
#include "readers/tree_of.h"

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
  (void)read_chat_templates(file);
  (void)read_special_tokens(file, tokenizer);
}

const nlohmann::ordered_json kNoMessages = {{"messages", nlohmann::ordered_json::array()}};

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
      (void)read_chat_templates(file).pick(false).render(*testing::tree_of(kNoMessages));
    });
    // Some templates have a meaning: where there is a message it is clean.
    if (message == "no error") continue;
    testing::expect_clean_message(source.substr(0, 40), [&] {
      (void)read_chat_templates(file).pick(false).render(*testing::tree_of(kNoMessages));
    });
  }
}

std::string render(const std::string& source, const Chat& chat, int64_t max_context = 2048) {
  return render_chat(chat_template::ChatTemplates::from({{"default", source}}), chat,
                     {{"bos_token", "<s>"}}, max_context);
}
std::string render(const std::string& source, std::string_view content, int64_t max_context) {
  const ChatTurn turns[] = {{"user", content}};
  return render(source, {.turns = turns}, max_context);
}

TEST(ModelText, PromptsOfSentencePieceBeginWithBosWhereThereIsOne) {
  const auto num_begin_tokens = [](bool has_bos) {
    GgufBuilder builder;
    builder.value("tokenizer.ggml.model", "llama")
        .array("tokenizer.ggml.tokens", std::vector<std::string>{"<s>", "a", "b"})
        .array("tokenizer.ggml.scores", std::vector<float>{0.0f, -1.0f, -2.0f});
    if (has_bos) builder.value("tokenizer.ggml.bos_token_id", uint32_t{0});
    const std::string bytes = builder.build();
    const GgufFile file(std::as_bytes(std::span(bytes)), "m.gguf");
    return tokenizer::Tokenizer(read_vocabulary(file)).begin_tokens().size();
  };
  EXPECT_EQ(num_begin_tokens(true), 1u);
  EXPECT_EQ(num_begin_tokens(false), 0u);
}

TEST(ModelText, ReadsNamedTemplatesAndSpecialTokens) {
  GgufBuilder builder;
  builder.value("tokenizer.ggml.model", "gpt2");
  builder.array<std::string_view>("tokenizer.ggml.tokens", {"a", "<s>", "</s>"});
  builder.array<int32_t>("tokenizer.ggml.token_type", {1, 3, 3});
  builder.array<std::string_view>("tokenizer.ggml.merges", {});
  builder.value("tokenizer.ggml.bos_token_id", uint32_t{1});
  builder.value("tokenizer.ggml.padding_token_id", uint32_t{2});
  builder.value("tokenizer.chat_template", "D{{ bos_token }}{{ eos_token is defined }}");
  builder.array<std::string_view>("tokenizer.chat_templates", {"tool_use"});
  builder.value("tokenizer.chat_template.tool_use", "T{{ pad_token }}");
  const std::string bytes = builder.build();
  const GgufFile file(std::as_bytes(std::span(bytes.data(), bytes.size())), "m.gguf");
  const auto templates = read_chat_templates(file);
  const auto special = read_special_tokens(file, tokenizer::Tokenizer(read_vocabulary(file)));
  EXPECT_EQ(special, (chat_template::SpecialTokens{{"bos_token", "<s>"}, {"pad_token", "</s>"}}));
  const ChatTurn turns[] = {{"user", "a"}};
  EXPECT_EQ(render_chat(templates, {.turns = turns}, special, 16), "D<s>False");
  EXPECT_EQ(render_chat(templates, {.turns = turns, .tools_json = "[]"}, special, 16), "T</s>");
}

TEST(ModelText, RendersTheConversation) {
  EXPECT_EQ(render("{{ bos_token }}{{ messages[0].role }}: {{ messages[0].content }}"
                   "{{ eos_token }}{{ add_generation_prompt }}",
                   "hello", 16),
            "<s>user: helloTrue");
}

TEST(ModelText, RendersConversationsThatAreJson) {
  const Chat chat{
      .messages_json = R"([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}])",
      .tools_json = R"([{"b": 1, "a": 2}])",
      .documents_json = R"([{"title": "t"}])",
      .template_kwargs_json = R"({"enable_thinking": false, "bos_token": "[B]"})",
      .add_generation_prompt = false};
  EXPECT_EQ(render("{{ messages[0].content[0].text }} {{ tools }} {{ documents }} {{ bos_token }} "
                   "{{ enable_thinking }} {{ add_generation_prompt }}",
                   chat),
            "Hi [{'b': 1, 'a': 2}] [{'title': 't'}] [B] False False");
}

TEST(ModelText, NamesTheFieldOfJsonThatIsWrong) {
  const auto expect_refused = [](std::initializer_list<const char*> parts, const Chat& chat) {
    testing::expect_invalid(parts, [&] { (void)render("a", chat); });
  };
  const std::string one = R"([{"role": "user", "content": "a"}])";
  expect_refused({"messages_json", "JSON"}, {.messages_json = "[{"});
  expect_refused({"messages is object, expected an array"}, {.messages_json = "{}"});
  expect_refused({"tools_json"}, {.messages_json = one, .tools_json = "["});
  expect_refused({"tools[0] is string"}, {.messages_json = one, .tools_json = R"(["a"])"});
  expect_refused({"documents_json"}, {.messages_json = one, .documents_json = "a"});
  expect_refused({"chat_template_kwargs is array"},
                 {.messages_json = one, .template_kwargs_json = "[]"});
  expect_refused({"chat_template_kwargs holds 'messages'"},
                 {.messages_json = one, .template_kwargs_json = R"({"messages": 1})"});
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  expect_refused({"messages_json", "100"}, {.messages_json = deep});
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
