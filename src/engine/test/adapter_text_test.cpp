// Adapters that bring a chat template or a tokenizer.
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/test/tiny_model.h"
#include "engine/text/row_text.h"
#include "expect_error.h"
#include "model/test/adapter_cases.h"

namespace heddle {
namespace {

namespace llama = model::llama;
using model::ref::Llama;

/// A tokenizer.json with these tokens, and "<x>" after them, of which `tokens` may be merged from
/// nothing.
std::string tokenizer_json(const std::vector<std::string>& tokens) {
  nlohmann::json vocabulary = nlohmann::json::object();
  for (const std::string& token : tokens) vocabulary[token] = vocabulary.size();
  const nlohmann::json bytes = {{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", true}};
  return nlohmann::json(
             {{"version", "1.0"},
              {"normalizer", nullptr},
              {"post_processor", nullptr},
              {"added_tokens",
               {{{"id", tokens.size()},
                 {"content", "<x>"},
                 {"special", true},
                 {"single_word", false},
                 {"lstrip", false},
                 {"rstrip", false},
                 {"normalized", false}}}},
              {"pre_tokenizer", bytes},
              {"decoder", bytes},
              {"model",
               {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}})
      .dump();
}

class AdapterText : public ::testing::Test {
 protected:
  /// A folder of a random adapter, for further files.
  std::string write_adapter() {
    std::string weights;
    (void)model::random_adapter<float>("F32", 2, {llama::kQ}, weights, adapted_);
    folder_.write("adapter_model.safetensors", weights);
    folder_.write(
        "adapter_config.json",
        R"({"peft_type": "LORA", "lora_alpha": 3.0, "r": 2, "target_modules": ["q_proj"]})");
    return folder_.path().string();
  }
  std::vector<int32_t> tokens_of(const std::string& adapter) {
    Request request;
    request.messages = {{"user", "Hi"}};
    request.adapter = adapter;
    return engine_.tokenize(request);
  }

  Llama base_ = model::random_llama(testing::tiny_config(), true), adapted_ = base_;
  testing::TempFolder folder_;
  Engine engine_ = testing::TinyModel(base_, {.chat_template = "{{ messages[0].content }}"})
                       .engine({.max_batch = 2});
};

TEST_F(AdapterText, ItsChatTemplateIsForItsRows) {
  const std::string path = write_adapter();
  (void)engine_.add_adapter("without", path);
  folder_.write("chat_template.jinja", "{{ messages[0].content }}!");
  (void)engine_.add_adapter("with", path);
  EXPECT_EQ(tokens_of("with"), (std::vector<int32_t>{'H', 'i', '!'}));
  EXPECT_EQ(tokens_of("without"), (std::vector<int32_t>{'H', 'i'}));
  EXPECT_EQ(tokens_of(""), (std::vector<int32_t>{'H', 'i'}));
}

/// Texts that make the same tokens are tokenized once for neighbours, and for no others.
TEST_F(AdapterText, EachAdapterOfARequestHasItsOwnTemplateInAnyOrder) {
  const std::string path = write_adapter();
  (void)engine_.add_adapter("plain", path);
  folder_.write("chat_template.jinja", "{{ messages[0].content }}!");
  (void)engine_.add_adapter("cries", path);
  folder_.write("chat_template.jinja", "{{ messages[0].content }}?");
  (void)engine_.add_adapter("asks", path);
  folder_.write("tokenizer.json", tokenizer_json({"i", "?", "H"}));
  (void)engine_.add_adapter("other", path);
  const std::map<std::string, std::vector<int32_t>> want = {{"", {'H', 'i'}},
                                                            {"plain", {'H', 'i'}},
                                                            {"cries", {'H', 'i', '!'}},
                                                            {"asks", {'H', 'i', '?'}},
                                                            {"other", {2, 0, 1}}};
  Request request = testing::request_of({}, 2);
  request.token_ids.reset();
  request.messages = {{"user", "Hi"}};
  request.tell_tokens = request.ignore_end = true;
  for (const std::vector<std::string>& order :
       {std::vector<std::string>{"cries", "", "asks", "plain"},
        {"cries", "cries", "other", "other", "asks", "", ""},
        {"", "other", "", "cries", "plain", "asks", "asks"}}) {
    std::vector<RequestVariant> each;
    for (const std::string& name : order) {
      each.emplace_back();
      if (!name.empty()) each.back().adapters = {{name}};
    }
    const std::vector<RequestId> ids = engine_.submit_each(request, each);
    std::vector<testing::Outcome> outcomes(ids.size());
    while (engine_.num_unfinished() > 0) testing::take(engine_.step(), ids.front(), outcomes);
    for (size_t i = 0; i < order.size(); ++i) {
      const Completion& got = outcomes[i].completion;
      EXPECT_EQ(got.prompt_token_ids, want.at(order[i])) << order[i] << " as row " << i;
      Request alone = request;
      alone.adapters = each[i].adapters;
      testing::expect_same(got, testing::run_all(engine_, {alone}).front(), order[i]);
    }
  }
}

TEST_F(AdapterText, ItsTokenizerIsForItsRows) {
  const std::vector<std::string> tokens = {"i", "!", "H"};
  const std::string path = write_adapter();
  folder_.write("tokenizer.json", tokenizer_json(tokens));
  folder_.write("tokenizer_config.json", R"({"eos_token": "<x>", "chat_template": "<x>H!"})");
  (void)engine_.add_adapter("own", path);
  EXPECT_EQ(tokens_of("own"), (std::vector<int32_t>{3, 2, 1}));
  EXPECT_EQ(tokens_of(""), (std::vector<int32_t>{'H', 'i'}));
  Request request = testing::request_of({1, 2}, 24);
  request.adapter = "own";
  request.ignore_end = true;
  request.sampling = {.temperature = 8.0f};
  const Completion answer = testing::run_all(engine_, {request}).front();
  std::string text;
  for (const int32_t token : answer.token_ids) {
    if (token < 3) text += tokens[static_cast<size_t>(token)];
    if (token == 3) text += "<x>";
  }
  EXPECT_EQ(answer.text, text);
}

/// So that many adapters with one tokenizer take its memory once.
TEST_F(AdapterText, EqualTokenizersAreOne) {
  const testing::TempFolder other;
  const std::string path = write_adapter();
  folder_.write("tokenizer.json", tokenizer_json({"i", "!", "H"}));
  other.write("tokenizer.json", tokenizer_json({"i", "!", "H"}));
  const model::FolderText first(path), second(other.path().string());
  OwnTokenizers tokenizers;
  const auto of_first = tokenizers.of(first);
  EXPECT_EQ(tokenizers.of(second), of_first);
  other.write("tokenizer_config.json", R"({"pad_token": "<pad>"})");
  EXPECT_NE(tokenizers.of(second), of_first);
  other.write("tokenizer.json", tokenizer_json({"i", "H", "!"}));
  const auto changed = tokenizers.of(second);
  EXPECT_NE(changed, of_first);
  EXPECT_EQ(changed->find("H"), 1);
}

/// No request uses the pad token that training added to the tokenizer. Tokens are checked where a
/// prompt has them.
TEST_F(AdapterText, ItsTokenizerMayHaveTokensThatTheModelHasNoRowsFor) {
  const std::string path = write_adapter();
  folder_.write("added_tokens.json", R"({"<x>": 256})");
  testing::expect_unsupported({"added_tokens.json: adds tokens, and there is no tokenizer.json; "
                               "this makes one: python -c"},
                              [&] { (void)engine_.add_adapter("a", path); });
  std::vector<std::string> many = {"H", "i"};
  for (int i = 2; i < 256; ++i) many.push_back("t" + std::to_string(i));
  folder_.write("tokenizer.json", tokenizer_json(many));
  folder_.write("tokenizer_config.json", R"({"eos_token": "<x>"})");
  (void)engine_.add_adapter("a", path);
  EXPECT_EQ(tokens_of("a"), (std::vector<int32_t>{0, 1}));
  Request request = testing::request_of({1, 2}, 4);
  request.adapter = "a";
  request.min_tokens = 2;  // which forbids the end token, if it has a logit
  EXPECT_EQ(testing::run_all(engine_, {request}).front().token_ids.size(), 4u);
  request.token_ids.reset();
  request.text = "i<x>";
  testing::expect_invalid({"token id 256 ('<x>' of the tokenizer), the vocabulary has 256"},
                          [&] { engine_.check(request); });
}

}  // namespace
}  // namespace heddle
