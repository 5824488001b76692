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

GgufFile open(const std::string& bytes) { return {std::as_bytes(std::span(bytes)), "m.gguf"}; }

/// Reads all that a model file says besides its weights.
void read_all(const std::string& bytes) {
  const GgufFile file = open(bytes);
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

/// A file that read_all accepts, except for one key, whose value is `text`.
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
    const GgufFile file = open(bytes);
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

TEST(ModelText, ImagesAreRefusedByName) {
  const auto with = [](const std::string& part) {
    return testing::message_of([&] {
      (void)render("{{ messages[1].content[0].text }}",
                   {.messages_json = R"([{"role": "system", "content": "s"},
                                         {"role": "user", "content": [{"type": "text", "text": "t"},)" +
                                     part + "]}]"});
    });
  };
  for (const char* type : {"image", "image_url", "input_audio", "video"}) {
    EXPECT_EQ(with(R"({"type": ")" + std::string(type) + R"(", "url": "x"})"),
              "messages[1].content[1] is of type " + std::string(type) +
                  ": images, sound and video are not supported; only text is");
  }
  EXPECT_EQ(with(R"({"type": "text", "text": "image"})"), "no error");
  EXPECT_EQ(with(R"({"type": 3}, "image", null)"), "no error");
}

TEST(ModelText, PromptsOfSentencePieceBeginWithBosWhereThereIsOne) {
  const auto num_begin_tokens = [](bool has_bos) {
    GgufBuilder builder;
    builder.value("tokenizer.ggml.model", "llama")
        .array("tokenizer.ggml.tokens", std::vector<std::string>{"<s>", "a", "b"})
        .array("tokenizer.ggml.scores", std::vector<float>{0.0f, -1.0f, -2.0f});
    if (has_bos) builder.value("tokenizer.ggml.bos_token_id", uint32_t{0});
    const std::string bytes = builder.build();
    const GgufFile file = open(bytes);
    return tokenizer::Tokenizer(read_vocabulary(file)).begin_tokens().size();
  };
  EXPECT_EQ(num_begin_tokens(true), 1u);
  EXPECT_EQ(num_begin_tokens(false), 0u);
}

/// llama.cpp ends answers by these texts, whatever the file says of the tokens.
TEST(ModelText, EndsOfATurnAreFoundByTheirText) {
  const auto ends = [](const std::vector<std::string>& tokens, bool has_eos) {
    GgufBuilder builder;
    builder.value("tokenizer.ggml.model", "gpt2").array("tokenizer.ggml.tokens", tokens);
    if (has_eos) builder.value("tokenizer.ggml.eos_token_id", uint32_t{1});
    const std::string bytes = builder.build();
    return read_end_tokens(open(bytes));
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(ends({"a", "b", "<|im_end|>", "<|im_start|>"}, true), (Ids{1, 2}));
  EXPECT_EQ(ends({"<end_of_turn>", "</s>", "<eos>", "x</s>"}, true), (Ids{1, 0, 2}));
  EXPECT_EQ(ends({"a", "b"}, false), Ids());
  EXPECT_EQ(ends({"<|end|>", "<|return|>", "a"}, false), (Ids{0, 1}));
  EXPECT_EQ(ends({"<|end|>", "<|return|>", "<|call|>"}, false), (Ids{1, 2}));
}

/// In Qwen's vocabulary "</s>" is a piece of text like any other.
TEST(ModelText, ATextThatMergesMakeEndsNothing) {
  GgufBuilder builder;
  builder.value("tokenizer.ggml.model", "gpt2").value("tokenizer.ggml.pre", "gpt-2");
  builder.array<std::string_view>("tokenizer.ggml.tokens",
                                  {"<", "/", "s", ">", "</", "</s", "</s>", "<|im_end|>"});
  builder.array<int32_t>("tokenizer.ggml.token_type", {1, 1, 1, 1, 1, 1, 1, 1});
  builder.array<std::string_view>("tokenizer.ggml.merges", {"< /", "</ s", "</s >"});
  const std::string bytes = builder.build();
  const GgufFile file = open(bytes);
  EXPECT_EQ(read_end_tokens(file), std::vector<int32_t>{7});
  const tokenizer::Vocabulary vocabulary = read_vocabulary(file);
  EXPECT_EQ(vocabulary.types[6], tokenizer::TokenType::kNormal);
  EXPECT_EQ(vocabulary.types[7], tokenizer::TokenType::kControl);
  EXPECT_EQ(tokenizer::Tokenizer(vocabulary).vocab_size(), 8);  // its merges have their tokens
}

TEST(ModelText, AFileWithoutAPreTokenizerHasThatOfLlamaCpp) {
  const auto read = [](const char* pre, const char* role, uint32_t id) {
    GgufBuilder builder;
    builder.value("tokenizer.ggml.model", "gpt2");
    builder.array<std::string_view>("tokenizer.ggml.tokens", {"1", "2", "12", "<|im_end|>"});
    builder.array<int32_t>("tokenizer.ggml.token_type", {1, 1, 1, 1});
    builder.array<std::string_view>("tokenizer.ggml.merges", {"1 2"});
    if (pre != nullptr) builder.value("tokenizer.ggml.pre", pre);
    if (role != nullptr) builder.value(role, id);
    const std::string bytes = builder.build();
    const GgufFile file = open(bytes);
    const tokenizer::Vocabulary vocabulary = read_vocabulary(file);
    EXPECT_EQ(vocabulary.pre_tokenizer, pre == nullptr ? "default" : pre);
    EXPECT_EQ(vocabulary.types.back(), tokenizer::TokenType::kControl);
    EXPECT_EQ(vocabulary.eos, tokenizer::kNoToken);
    return read_text_warnings(file);
  };
  EXPECT_EQ(read("gpt-2", nullptr, 0), std::vector<std::string>());
  const std::vector<std::string> none = read(nullptr, nullptr, 0);
  ASSERT_EQ(none.size(), 1u);
  EXPECT_EQ(none.front().find("m.gguf: has no tokenizer.ggml.pre, "), 0u);
  for (const char* role : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.padding_token_id"}) {
    const std::vector<std::string> odd = read("gpt-2", role, 4);
    ASSERT_EQ(odd.size(), 1u);
    EXPECT_EQ(odd.front().find("m.gguf: " + std::string(role) + " is 4, the vocabulary has 4"), 0u);
  }
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
  const GgufFile file = open(bytes);
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

/// What transformers renders.
TEST(ModelText, TheTextEndsInTheMessageThatTheAnswerGoesOnWith) {
  const auto continued = [](const char* source, const std::string& messages) {
    return render(source, {.messages_json = messages,
                           .add_generation_prompt = false,
                           .continue_final_message = true});
  };
  const auto last = [](const std::string& content) {
    return R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": )" + content +
           "}]";
  };
  constexpr const char* kPlain = "{% for m in messages %}<{{ m.content }}>{% endfor %}";
  constexpr const char* kTrims = "{% for m in messages %}<{{ m.content | trim }}>{% endfor %}";
  EXPECT_EQ(continued(kPlain, last(R"("a b")")), "<q><a b");
  EXPECT_EQ(continued(kPlain, last(R"("")")), "<q><");
  EXPECT_EQ(continued(kPlain, last(R"("  ")")), "<q><  ");
  EXPECT_EQ(continued(kPlain, last(R"(" a ")")), "<q>< a ");
  EXPECT_EQ(continued(kPlain, last(R"("q")")), "<q><q");
  EXPECT_EQ(continued(kTrims, last(R"(" a ")")), "<q><a");
  EXPECT_EQ(continued(kTrims, last(R"("  ")")), "<q><");
  EXPECT_EQ(
      continued(kPlain, last(R"([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])")),
      "<q><a\nb");
  EXPECT_EQ(continued(kPlain, last(R"("THE_ANSWER_GOES_ON_HERE_0 a")")),
            "<q><THE_ANSWER_GOES_ON_HERE_0 a");
  // A template that leaves out what a model thought, while another message has the same text.
  constexpr const char* kShortens =
      "{% for m in messages %}<{% if m.role == 'assistant' %}{{ m.content.split('|')[-1] }}"
      "{% else %}{{ m.content }}{% endif %}>{% endfor %}";
  const std::string twice =
      R"([{"role": "user", "content": "is r|a right"}, {"role": "assistant", "content": "r|a"}])";
  EXPECT_EQ(continued(kShortens, twice), "<is r|a right><a");
  testing::expect_invalid({"continue_final_message", "is not in the rendered text"},
                          [&] { (void)continued(kShortens, last(R"("r|a")")); });
  testing::expect_invalid({"continue_final_message", "is not in the rendered text"},
                          [&] { (void)continued("{{ messages[0].content }}", last(R"("a")")); });
  testing::expect_invalid({"continue_final_message: the last message has no text"},
                          [&] { (void)continued(kPlain, last("[]")); });
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
