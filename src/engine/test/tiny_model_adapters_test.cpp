// Adapters from folders, through the engine, against the model with the adapter added to its
// weights in double.
#include <map>

#include <gtest/gtest.h>

#include "compare.h"
#include "engine/test/tiny_adapter.h"
#include "engine/test/tiny_model.h"
#include "expect_error.h"

namespace heddle {
namespace {

namespace llama = model::llama;
using model::ref::Llama;

using testing::TinyAdapter;

void expect_logits(Engine& engine, const std::string& adapter, const Llama& model) {
  Request request = testing::request_of(testing::random_tokens(11));
  request.adapter = adapter;
  const std::vector<double> want = model::ref::logits(model, *request.token_ids);
  const std::vector<float> got = engine.prompt_logits(request);
  EXPECT_LT(testing::relative_error<float>(got, want), testing::logits_tolerance())
      << "adapter \"" << adapter << '"';
}

/// Alone with the base model, whatever its place in the tables, and with one of a higher rank
/// that came later.
TEST(TinyModelAdapters, EachRequestHasItsOwn) {
  const Llama base = model::random_llama(testing::tiny_config(), true);
  const TinyAdapter first(base, 3, {llama::kQ, llama::kO, llama::kUp});
  const TinyAdapter second(base, 20, {llama::kK, llama::kV, llama::kDown});
  const TinyAdapter third(base, 1, {llama::kGate});
  Engine engine = testing::TinyModel(base).engine({.max_batch = 2, .prefill_chunk = 4});
  expect_logits(engine, "", base);
  (void)engine.add_adapter("first", first.folder.path().string());
  expect_logits(engine, "first", first.merged);
  expect_logits(engine, "", base);
  (void)engine.add_adapter("second", second.folder.path().string());
  (void)engine.add_adapter("third", third.folder.path().string());
  expect_logits(engine, "first", first.merged);
  expect_logits(engine, "second", second.merged);
  expect_logits(engine, "third", third.merged);
  expect_logits(engine, "", base);
  EXPECT_TRUE(engine.has_adapter("third"));
  EXPECT_FALSE(engine.has_adapter("fourth"));
  testing::expect_invalid({"adapter name \"first\" is given twice"},
                          [&] { (void)engine.add_adapter("first", third.folder.path().string()); });
}

/// In one batch, from the prompt to the last token of the answer.
TEST(TinyModelAdapters, AnswersKeepTheirsToTheEnd) {
  const Llama base = model::random_llama(testing::tiny_config(), true);
  const TinyAdapter first(base, 4, {llama::kV, llama::kGate});
  const TinyAdapter second(base, 9, {llama::kQ, llama::kDown});
  Engine engine = testing::TinyModel(base).engine({.max_batch = 3, .prefill_chunk = 5});
  (void)engine.add_adapter("first", first.folder.path().string());
  (void)engine.add_adapter("second", second.folder.path().string());
  const std::vector<std::pair<std::string, const Llama*>> rows = {
      {"first", &first.merged}, {"", &base}, {"second", &second.merged}, {"first", &first.merged}};
  std::vector<Request> requests;
  for (const auto& [adapter, model] : rows) {
    requests.push_back(testing::request_of(testing::random_tokens(7), 9));
    requests.back().adapter = adapter;
  }
  const std::vector<Completion> answers = testing::run_all(engine, requests);
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(answers[i].token_ids.size(), 9u) << answers[i].error;
    testing::expect_greedy(answers[i], *rows[i].second, *requests[i].token_ids);
  }
}

/// Its tied head takes rows from the embedding: the head must have them.
TEST(TinyModelAdapters, AnOwnTokenIsWithinTheHeadThatIsTied) {
  const Llama base = model::random_llama(testing::tiny_config(), false);
  const int64_t hidden_size = base.config.hidden_size;
  const auto values = testing::random_normal<float>(static_cast<size_t>(200 * hidden_size));
  const auto bytes = [&](int64_t rows) {
    return std::string(reinterpret_cast<const char*>(values.data()),
                       static_cast<size_t>(rows * hidden_size) * sizeof(float));
  };
  Engine engine = testing::TinyModel(base).engine();
  for (const int token : {199, 200}) {
    testing::SafetensorsBuilder tensors;
    tensors.tensor("base_model.model.lm_head.weight", "F32", {200, hidden_size}, bytes(200));
    tensors.tensor("base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta",
                   "F32", {1, hidden_size}, bytes(1));
    const testing::TempFolder folder;
    folder.write("adapter_model.safetensors", tensors.build());
    folder.write("adapter_config.json", R"({"peft_type": "LORA", "modules_to_save": ["lm_head"], )"
                                        R"("trainable_token_indices": [)" +
                                            std::to_string(token) + "]}");
    const auto add = [&] { (void)engine.add_adapter("a", folder.path().string()); };
    if (token < 200) {
      EXPECT_NO_THROW(add());
      EXPECT_TRUE(engine.remove_adapter("a"));
    } else {
      testing::expect_invalid({"has its own token 200 in its embedding, the head that is tied to "
                               "it has 200 tokens"},
                              add);
    }
  }
}

/// More tokens than the base model has, drawn and greedy, in a batch with rows of the base model.
TEST(TinyModelAdapters, OneMayHaveMoreTokens) {
  const Llama base = model::random_llama(testing::tiny_config(), true);
  const testing::WideAdapter adapter(base, 300);
  const Llama& wide = adapter.merged;
  Engine engine = testing::TinyModel(base).engine({.max_batch = 4, .prefill_chunk = 5});
  Request plain = testing::request_of(testing::random_tokens(6), 12);
  plain.ignore_end = true;
  const Completion before = testing::run_all(engine, {plain}).front();
  (void)engine.add_adapter("wide", adapter.folder.path().string());
  testing::expect_same(testing::run_all(engine, {plain}).front(), before,
                       "with the adapter loaded");
  expect_logits(engine, "wide", wide);
  expect_logits(engine, "", base);
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(testing::request_of(testing::random_tokens(6), 12));
    Request& request = requests.back();
    request.ignore_end = true;
    request.sampling = {.temperature = i < 4 ? 0.0f : 3.0f, .top_p = 0.99f, .seed = i};
    if (i % 3 == 0) continue;
    request.adapter = "wide";
    request.token_ids->push_back(280 + i);
  }
  const std::vector<Completion> together = testing::run_all(engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(together[i].token_ids.size(), 12u) << together[i].error;
    const std::vector<Completion> alone = testing::run_all(engine, {requests[i]});
    EXPECT_EQ(alone[0].token_ids, together[i].token_ids);
    EXPECT_TRUE(testing::same_bits<float>(alone[0].logprobs, together[i].logprobs));
    for (const int32_t token : together[i].token_ids) {
      EXPECT_LT(token, requests[i].adapter.empty() ? 256 : 300);
    }
    if (requests[i].sampling.temperature == 0.0f) {
      testing::expect_greedy(together[i], requests[i].adapter.empty() ? base : wide,
                             *requests[i].token_ids);
    }
  }
  requests[1].adapter.clear();
  testing::expect_invalid({"token id 281, the vocabulary has 256"},
                          [&] { engine.check(requests[1]); });
}

TEST(TinyModelAdapters, OneThatDoesNotFitLeavesItsNameFree) {
  model::DecoderConfig wider = testing::tiny_config();
  wider.intermediate_size = 48;
  const Llama base = model::random_llama(testing::tiny_config(), true);
  const TinyAdapter wrong(model::random_llama(wider, true), 3, {llama::kUp});
  const TinyAdapter right(base, 3, {llama::kUp});
  Engine engine = testing::TinyModel(base).engine({.max_batch = 2});
  testing::expect_invalid({"gives 48 features, the model's layer has 40"},
                          [&] { (void)engine.add_adapter("a", wrong.folder.path().string()); });
  EXPECT_FALSE(engine.has_adapter("a"));
  Request request = testing::request_of({1});
  request.adapter = "a";
  testing::expect_invalid({"unknown adapter \"a\""}, [&] { engine.check(request); });
  (void)engine.add_adapter("a", right.folder.path().string());
  expect_logits(engine, "a", right.merged);
}

/// Rows of a prompt and a long answer, one with each of the adapters.
class TinyModelAdapterChanges : public ::testing::Test {
 protected:
  /// Bits of a row alone in an engine that has one adapter under the row's name.
  Completion alone(const Request& request, const TinyAdapter* adapter) {
    Engine fresh = model.engine({.max_batch = 3, .prefill_chunk = 4});
    if (adapter != nullptr) {
      (void)fresh.add_adapter(request.adapter, adapter->folder.path().string());
    }
    return testing::run_all(fresh, {request})[0];
  }

  static Request request(const std::string& adapter, int64_t num_tokens = 9) {
    Request row = testing::endless_request(testing::random_tokens(num_tokens), 20);
    row.adapter = adapter;
    return row;
  }

  /// Runs all rows to their ends; the completion of each.
  std::map<RequestId, Completion> finish() {
    std::map<RequestId, Completion> completions;
    while (engine.num_unfinished() > 0) {
      for (Event& event : engine.step()) {
        if (event.completion) completions[event.request] = std::move(*event.completion);
      }
    }
    return completions;
  }

  Llama base = model::random_llama(testing::tiny_config(), true);
  TinyAdapter first{base, 3, {llama::kQ, llama::kUp}};
  TinyAdapter second{base, 20, {llama::kV, llama::kDown}};
  testing::TinyModel model{base};
  Engine engine = model.engine({.max_batch = 3, .prefill_chunk = 4});
};

TEST_F(TinyModelAdapterChanges, OneMayComeWhileRowsRun) {
  (void)engine.add_adapter("a", first.folder.path().string());
  const Request row = request("a"), plain = request("");
  const RequestId id = engine.submit(row), plain_id = engine.submit(plain);
  for (int i = 0; i < 5; ++i) (void)engine.step();
  (void)engine.add_adapter("b", second.folder.path().string());
  const Request later = request("b");
  const RequestId later_id = engine.submit(later);
  const auto completions = finish();
  testing::expect_same(completions.at(id), alone(row, &first), "began before");
  testing::expect_same(completions.at(plain_id), alone(plain, nullptr), "without an adapter");
  testing::expect_same(completions.at(later_id), alone(later, &second), "came with it");
  EXPECT_EQ(engine.adapter_names(), (std::vector<std::string>{"a", "b"}));
}

/// Whether a row waits, prefills or decodes when its adapter is removed.
TEST_F(TinyModelAdapterChanges, RowsEndWithTheWeightsThatTheyBeganWith) {
  for (const int num_steps : {0, 1, 6}) {
    for (const bool is_replaced : {false, true}) {
      (void)engine.replace_adapter("a", first.folder.path().string());
      const std::vector<Request> rows{request("a"), request("a", 11), request("a"), request("a")};
      std::vector<RequestId> ids;
      for (const Request& row : rows) ids.push_back(engine.submit(row));
      for (int i = 0; i < num_steps; ++i) (void)engine.step();
      if (is_replaced) {
        (void)engine.replace_adapter("a", second.folder.path().string());
      } else {
        EXPECT_TRUE(engine.remove_adapter("a"));
      }
      EXPECT_EQ(engine.has_adapter("a"), is_replaced);
      // The next one must not get the place of what rows still use.
      (void)engine.add_adapter("other", second.folder.path().string());
      const Request later = request("a");
      const RequestId later_id = engine.submit(later);
      const auto completions = finish();
      for (size_t i = 0; i < rows.size(); ++i) {
        testing::expect_same(completions.at(ids[i]), alone(rows[i], &first),
                             "step " + std::to_string(num_steps));
      }
      if (is_replaced) {
        testing::expect_same(completions.at(later_id), alone(later, &second), "the new weights");
      } else {
        EXPECT_EQ(completions.at(later_id).error, "unknown adapter \"a\"");
      }
      EXPECT_TRUE(engine.remove_adapter("other"));
      EXPECT_FALSE(engine.remove_adapter("other"));
    }
  }
}

TEST_F(TinyModelAdapterChanges, OneThatCannotBeLoadedLeavesTheOldOne) {
  (void)engine.add_adapter("a", first.folder.path().string());
  EXPECT_NE(testing::message_of([&] { (void)engine.replace_adapter("a", "/nonexistent"); }),
            "no error");
  const Request row = request("a");
  testing::expect_same(testing::run_all(engine, {row})[0], alone(row, &first), "the old one");
}

TEST_F(TinyModelAdapterChanges, ACancelledRowLetsGoOfItsAdapter) {
  (void)engine.add_adapter("a", first.folder.path().string());
  const RequestId id = engine.submit(request("a"));
  (void)engine.step();
  EXPECT_TRUE(engine.remove_adapter("a"));
  EXPECT_TRUE(engine.cancel(id));
  (void)engine.add_adapter("a", second.folder.path().string());
  const Request row = request("a");
  EXPECT_EQ(finish().at(id).finish_reason, FinishReason::kCancelled);
  testing::expect_same(testing::run_all(engine, {row})[0], alone(row, &second), "the new one");
}

/// Lists of adapters of two dtypes, which share sites and have sites of their own.
class TinyModelAdapterLists : public ::testing::Test {
 protected:
  using List = std::vector<AdapterWeight>;

  Engine engine_with(const std::vector<std::string>& names, EngineOptions options = {}) const {
    options.max_batch = std::max(options.max_batch, 8);
    Engine made = model.engine(options);
    const std::map<std::string, const TinyAdapter*> adapters = {
        {"a", &a}, {"b", &b}, {"c", &c}, {"called", &called}};
    for (const std::string& name : names) {
      (void)made.add_adapter(name, adapters.at(name)->folder.path().string());
    }
    return made;
  }

  /// The base model with scale times what each adds to its weights.
  Llama merged(const std::vector<std::pair<const TinyAdapter*, double>>& parts) const {
    Llama sum = base;
    for (size_t layer = 0; layer < base.layers.size(); ++layer) {
      for (int p = 0; p < model::llama::kNumSlices; ++p) {
        const std::vector<double>& plain = base.layers[layer].projection[p];
        for (const auto& [adapter, scale] : parts) {
          const std::vector<double>& own = adapter->merged.layers[layer].projection[p];
          for (size_t i = 0; i < plain.size(); ++i) {
            sum.layers[layer].projection[p][i] += scale * (own[i] - plain[i]);
          }
        }
      }
    }
    return sum;
  }

  static Request request(const List& list, int64_t num_tokens = 9) {
    Request row = testing::endless_request(testing::random_tokens(num_tokens), 7);
    row.adapters = list;
    return row;
  }

  Llama base = model::random_llama(testing::tiny_config(), true);
  TinyAdapter a{base, 3, {llama::kQ, llama::kUp, llama::kDown}};
  TinyAdapter b{base, 20, {llama::kQ, llama::kV, llama::kDown}, DType::kBFloat16};
  TinyAdapter c{base, 1, {llama::kDown}};
  TinyAdapter called{
      base, 2, {llama::kQ}, DType::kFloat32, R"(, "alora_invocation_tokens": [7, 8])"};
  testing::TinyModel model{base};
};

TEST_F(TinyModelAdapterLists, AddUpByTheirScales) {
  Engine engine = engine_with({"a", "b", "c"});
  const std::vector<std::pair<List, Llama>> cases = {
      {{{"a", 1.0f}, {"b", 1.0f}}, merged({{&a, 1.0}, {&b, 1.0}})},
      {{{"c", -1.5f}, {"b", 0.25f}, {"a", 0.5f}}, merged({{&c, -1.5}, {&b, 0.25}, {&a, 0.5}})},
      {{{"b", 0.5f}}, merged({{&b, 0.5}})},
      {{{"a", 0.0f}}, base},
      {{{"a", 1.0f}}, a.merged}};
  for (const auto& [list, want] : cases) {
    const Request row = request(list, 11);
    const std::vector<double> logits = model::ref::logits(want, *row.token_ids);
    EXPECT_LT(testing::relative_error<float>(engine.prompt_logits(row), logits),
              testing::logits_tolerance())
        << list.size() << " adapters, the first " << list[0].name;
  }
}

/// Whatever runs concurrently with a row, whichever came first, however the steps are cut.
TEST_F(TinyModelAdapterLists, RowsKeepTheirBits) {
  std::vector<Request> rows = {request({{"a", 0.5f}, {"b", 2.0f}}),
                               request({}),
                               request({{"b", 1.0f}, {"a", 1.0f}}),
                               request({{"a", 1.0f}}),
                               request({{"c", 0.1f}}),
                               request({})};
  rows[5].adapter = "b";
  Engine engine = engine_with({"a", "b", "c"});
  const std::vector<Completion> together = testing::run_all(engine, rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(together[i].token_ids.size(), 7u) << together[i].error;
    Engine fresh = engine_with({"c", "b", "a"}, {.page_size = 3, .prefill_chunk = 4});
    testing::expect_same(testing::run_all(fresh, {rows[i]})[0], together[i],
                         "row " + std::to_string(i));
  }
  Request plain = rows[3];
  plain.adapters.clear();
  plain.adapter = "a";
  testing::expect_same(testing::run_all(engine, {plain})[0], together[3], "one with scale 1");
}

TEST_F(TinyModelAdapterLists, RowsEndWithTheWeightsThatTheyBeganWith) {
  const Request row = request({{"a", 0.5f}, {"b", 2.0f}});
  Engine engine = engine_with({"a", "b"}), other = engine_with({"a", "b"});
  const Completion want = testing::run_all(other, {row})[0];
  const RequestId id = engine.submit(row);
  (void)engine.step();
  EXPECT_TRUE(engine.remove_adapter("b"));
  (void)engine.replace_adapter("a", c.folder.path().string());
  std::vector<testing::Outcome> outcomes(1);
  while (engine.num_unfinished() > 0) testing::take(engine.step(), id, outcomes);
  testing::expect_same(outcomes[0].completion, want, "the removed ones");
}

TEST_F(TinyModelAdapterLists, ThoseWithoutASumAreRefused) {
  Engine engine = engine_with({"a", "b", "called"});
  const auto message = [&](const List& list, const std::string& adapter = "") {
    Request row = request(list);
    row.adapter = adapter;
    return testing::message_of([&] { engine.check(row); });
  };
  EXPECT_EQ(message({{"a", 1.0f}, {"x", 1.0f}}), "unknown adapter \"x\"");
  EXPECT_EQ(message({{"a", 1.0f}, {"b", 1.0f}, {"a", 2.0f}}),
            "adapters[2].name is \"a\", which adapters[0] already has");
  EXPECT_EQ(message({{"a", 1.0f}, {"", 1.0f}}), "adapters[1].name is empty");
  EXPECT_EQ(message({{"a", std::nanf("")}}), "adapters[0].scale is nan, expected a finite number");
  EXPECT_EQ(message({{"a", 1.0f}}, "b"),
            "a request has adapter and adapters, expected only one of them");
  EXPECT_EQ(message(List(65, {"a", 1.0f})), "adapters has 65 entries, expected at most 64");
  EXPECT_EQ(
      message({{"a", 1.0f}, {"called", 1.0f}}),
      "adapters[1] is \"called\", which has alora_invocation_tokens: it must be the only adapter");
  EXPECT_EQ(message({{"called", 0.5f}}), "no error");
  EXPECT_EQ(message({{"called", 1.0f}}), "no error");
}

/// An aLoRA with a scale acts from its invocation on, times the scale.
TEST_F(TinyModelAdapterLists, OneWithInvocationTokensMayHaveAScale) {
  Engine engine = engine_with({"called"});
  Request row = request({{"called", 0.5f}});
  const std::vector<float> without = engine.prompt_logits(row);
  EXPECT_LT(testing::relative_error<float>(without, model::ref::logits(base, *row.token_ids)),
            testing::logits_tolerance());
  row.token_ids->insert(row.token_ids->begin(), {7, 8});
  const std::vector<double> want = model::ref::logits(merged({{&called, 0.5}}), *row.token_ids);
  EXPECT_LT(testing::relative_error<float>(engine.prompt_logits(row), want),
            testing::logits_tolerance());
}

/// Also its head, whichever tokens of the prompt a step scores.
TEST_F(TinyModelAdapterLists, TheHeadOfOneWithInvocationTokensActsFromTheseOn) {
  const int64_t hidden_size = base.config.hidden_size, num_tokens = base.config.vocab_size;
  testing::SafetensorsBuilder tensors;
  const auto half = [&](const char* name, int64_t rows, int64_t columns) {
    const auto values = testing::random_normal<float>(static_cast<size_t>(rows * columns));
    tensors.tensor(
        std::string("base_model.model.lm_head.lora_") + name + ".weight", "F32", {rows, columns},
        std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
  };
  half("A", 1, hidden_size);
  half("B", num_tokens, 1);
  const testing::TempFolder folder;
  folder.write("adapter_model.safetensors", tensors.build());
  folder.write("adapter_config.json", R"({"peft_type": "LORA", "r": 1, "target_modules": )"
                                      R"(["lm_head"], "alora_invocation_tokens": [7, 8]})");
  std::vector<float> reported[4];  // in chunks of 3 and 20, then without the adapter
  for (const int chunk : {3, 20}) {
    Engine engine = model.engine({.prefill_chunk = chunk});
    (void)engine.add_adapter("head", folder.path().string());
    Request row = request({{"head", 0.5f}}, 20);
    for (size_t t = 0; t < 20; ++t) (*row.token_ids)[t] = 9 + static_cast<int32_t>(t);
    (*row.token_ids)[13] = 7;
    (*row.token_ids)[14] = 8;
    row.max_tokens = 0;
    reported[chunk == 3 ? 0 : 1] = testing::run_all(engine, {row})[0].prompt_logprobs;
    row.adapters = {};
    reported[chunk == 3 ? 2 : 3] = testing::run_all(engine, {row})[0].prompt_logprobs;
  }
  const std::span<const float> list(reported[0]), whole(reported[1]), plain(reported[2]);
  ASSERT_EQ(list.size(), 20u);
  EXPECT_TRUE(testing::same_bits<float>(list.subspan(1), whole.subspan(1)));
  EXPECT_TRUE(testing::same_bits<float>(list.subspan(1, 13), plain.subspan(1, 13)));
  for (size_t t = 14; t < 20; ++t) EXPECT_NE(list[t], plain[t]) << "token " << t;
}

}  // namespace
}  // namespace heddle
