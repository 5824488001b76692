// DoRA, lora_bias, and adapters with an embedding or a head of their own, through the engine,
// against the model with the adapter added to its weights in double.
#include "engine/test/adapter_kinds.h"

#include <functional>
#include <map>
#include <memory>

#include <gtest/gtest.h>

#include "heddle/ops/linear.h"

#include "compare.h"
#include "engine/test/tiny_model.h"
#include "small_sizes.h"

namespace heddle {
namespace {

namespace llama = model::llama;
using model::ref::Llama;
using testing::KindAdapter;

using With = KindAdapter::With;

/// In what base models differ.
struct BaseCase {
  const char* name;
  bool has_head, has_bias, is_packed;
};
std::ostream& operator<<(std::ostream& os, const BaseCase& base) { return os << base.name; }

/// Its matrices have the values of Q8_0 where they will be packed.
Llama random_base(const BaseCase& base) {
  model::DecoderConfig config = testing::tiny_config();
  config.hidden_size = 32;
  config.intermediate_size = 64;
  config.num_q_heads = 4;
  Llama m = model::random_llama(config, base.has_head);
  const auto pack = [&](std::vector<double>& values) {
    if (!base.is_packed) return;
    std::vector<float> f32(values.begin(), values.end());
    std::vector<std::byte> stored(stored_bytes(WeightType::kQ8_0, std::ssize(f32)));
    quantize({}, stored, WeightType::kQ8_0, f32);
    dequantize(f32, WeightType::kQ8_0, stored);
    values.assign(f32.begin(), f32.end());
  };
  pack(m.embedding);
  pack(m.output);
  const model::BlockShape block = config.block();
  for (model::ref::Layer& layer : m.layers) {
    for (int p = 0; p < model::llama::kNumSlices; ++p) {
      pack(layer.projection[p]);
      if (!base.has_bias || p > llama::kV) continue;
      const auto size = static_cast<size_t>(block.slice(p).dims.out);
      layer.bias[p] = testing::to_double(testing::random_normal<float>(size, 0.5f));
    }
  }
  return m;
}

/// A model with an adapter of each kind.
class AdapterKinds : public ::testing::TestWithParam<BaseCase> {
 protected:
  AdapterKinds() {
    const std::vector<int> some = {llama::kQ, llama::kO, llama::kUp};
    const std::vector<int> others = {llama::kV, llama::kGate, llama::kDown};
    add("lora").projections(some, With::kNothing);
    add("dora").projections(some, With::kMagnitude);
    add("bias").projections(others, With::kBias);
    add("embedding").embedding(With::kNothing);
    add("embedding, dora").embedding(With::kMagnitude).projections(others, With::kMagnitude);
    add("head").head(With::kNothing).projections(some, With::kNothing);
    add("head, dora").head(With::kMagnitude);
    add("head, bias").head(With::kBias).projections(others, With::kBias);
    KindAdapter& tokens = add("tokens").token_rows(false, {9, 7, 200});
    if (!GetParam().has_head) tokens.tie_rows({9, 7, 200});
    add("tokens of both").token_rows(false, {9, 255}).token_rows(true, {4, 3, 250, 0});
    add("weights").weight(false).weight(true).projections(others, With::kNothing);
    add("a weight, adapted").weight(true).token_rows(true, {11, 2}).embedding(With::kNothing);
  }

  KindAdapter& add(const std::string& name) {
    auto& adapter = adapters_[name];
    adapter = std::make_unique<KindAdapter>(base_);
    return *adapter;
  }

  [[nodiscard]] const Llama& merged(const std::string& name) const {
    return adapters_.at(name)->merged;
  }

  /// With all adapters.
  [[nodiscard]] Engine engine(EngineOptions options = {}) {
    Engine made = plain_engine(options);
    for (const auto& [name, adapter] : adapters_) (void)made.add_adapter(name, adapter->write());
    return made;
  }

  [[nodiscard]] Engine plain_engine(EngineOptions options) const {
    if (GetParam().is_packed) options.weights = "q8_0";
    return model_.engine(options);
  }

  /// A prompt in which each token comes that some adapter has rows for.
  static std::vector<int32_t> prompt() {
    std::vector<int32_t> tokens = testing::random_tokens(8);
    for (const int32_t own : {9, 7, 200, 255}) tokens.insert(tokens.begin() + 3, own);
    return tokens;
  }

  static double error_of(const std::vector<float>& got, const Llama& model,
                         const std::vector<int32_t>& tokens) {
    return testing::relative_error<float>(got, model::ref::logits(model, tokens));
  }

  Llama base_ = random_base(GetParam());
  testing::TinyModel model_{base_};
  std::map<std::string, std::unique_ptr<KindAdapter>> adapters_;
};

/// At small sizes two that have and lack all of it.
std::vector<BaseCase> base_cases() {
  std::vector<BaseCase> cases = {{"tied", false, false, false}, {"packed", true, true, true}};
  if (testing::small_sizes()) return cases;
  cases.push_back({"dense", true, false, false});
  cases.push_back({"with_biases", true, true, false});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(BaseModels, AdapterKinds, ::testing::ValuesIn(base_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(AdapterKinds, EqualTheModelWithTheAdapterInItsWeights) {
  Engine all = engine({.max_batch = 2, .prefill_chunk = 5});
  for (const auto& [name, adapter] : adapters_) {
    Request request = testing::request_of(prompt());
    request.adapter = name;
    const std::vector<float> got = all.prompt_logits(request);
    EXPECT_LT(error_of(got, adapter->merged, *request.token_ids), testing::logits_tolerance())
        << name;
    EXPECT_GT(error_of(got, base_, *request.token_ids), 2 * testing::logits_tolerance()) << name;
  }
  const Request plain = testing::request_of(prompt());
  EXPECT_LT(error_of(all.prompt_logits(plain), base_, *plain.token_ids),
            testing::logits_tolerance());
}

/// Whatever runs concurrently with a row, prompts and answers, also rows of no such kind.
TEST_P(AdapterKinds, RowsKeepTheirBits) {
  std::vector<Request> requests;
  const auto add_request = [&](const std::string& adapter) {
    requests.push_back(testing::endless_request(prompt(), 6));
    requests.back().adapter = adapter;
    requests.back().prompt_logprobs = requests.size() % 3 == 0;
  };
  for (const auto& [name, adapter] : adapters_) add_request(name);
  for (const char* const again : {"", "lora", "dora", "head, bias"}) add_request(again);
  Request& list = requests.emplace_back(testing::endless_request(prompt(), 6));
  list.adapters = {{"bias", 0.5f}, {"lora", -1.0f}, {"head", 2.0f}};
  Engine all = engine({.max_batch = 9, .prefill_chunk = 23});
  const std::vector<Completion> together = testing::run_all(all, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(together[i].token_ids.size(), 6u) << together[i].error;
    Engine alone = plain_engine({.page_size = 3, .prefill_chunk = 4});
    const auto load = [&](const std::string& name) {
      if (!name.empty()) (void)alone.add_adapter(name, adapters_.at(name)->write());
    };
    load(requests[i].adapter);
    for (const AdapterWeight& one : requests[i].adapters) load(one.name);
    testing::expect_same(testing::run_all(alone, {requests[i]})[0], together[i],
                         requests[i].adapter + ", request " + std::to_string(i));
  }
}

/// base + sum_i scale_i (model of i - base), weight by weight: no two of a list change one product
/// in a way that has no sum.
TEST_P(AdapterKinds, ListsAddUpByTheirScales) {
  const std::vector<AdapterWeight> list = {
      {"bias", 0.5f}, {"lora", -1.0f}, {"head, bias", 0.75f}, {"embedding", 1.5f}};
  const Llama base = KindAdapter(base_).merged;  // with a head
  Llama sum = base;
  const auto add_up = [](std::vector<double>& to, const std::vector<double>& plain,
                         const std::vector<double>& own, double scale) {
    to.resize(std::max(to.size(), own.size()));
    for (size_t i = 0; i < own.size(); ++i)
      to[i] += scale * (own[i] - (plain.empty() ? 0 : plain[i]));
  };
  for (const auto& [name, scale] : list) {
    const Llama& own = merged(name);
    add_up(sum.embedding, base.embedding, own.embedding, scale);
    add_up(sum.output, base.output, own.output, scale);
    add_up(sum.output_bias, {}, own.output_bias, scale);
    for (size_t layer = 0; layer < sum.layers.size(); ++layer) {
      for (int p = 0; p < model::llama::kNumSlices; ++p) {
        add_up(sum.layers[layer].projection[p], base.layers[layer].projection[p],
               own.layers[layer].projection[p], scale);
        add_up(sum.layers[layer].bias[p], base.layers[layer].bias[p], own.layers[layer].bias[p],
               scale);
      }
    }
  }
  Engine all = engine({.max_batch = 2, .prefill_chunk = 5});
  Request request = testing::request_of(prompt());
  request.adapters = list;
  const std::vector<float> got = all.prompt_logits(request);
  EXPECT_LT(error_of(got, sum, *request.token_ids), testing::logits_tolerance());
  EXPECT_GT(error_of(got, base_, *request.token_ids), 2 * testing::logits_tolerance());
}

/// One that leaves gives its rows back to the base model.
TEST_P(AdapterKinds, TheyComeAndGo) {
  Engine all = engine({.max_batch = 2});
  const int64_t bytes = all.load().adapter_bytes;
  for (const auto& [name, adapter] : adapters_) EXPECT_TRUE(all.remove_adapter(name));
  EXPECT_EQ(all.load().adapter_bytes, 0);
  const Request plain = testing::request_of(prompt());
  EXPECT_LT(error_of(all.prompt_logits(plain), base_, *plain.token_ids),
            testing::logits_tolerance());
  for (const auto& [name, adapter] : adapters_) (void)all.add_adapter(name, adapter->write());
  EXPECT_EQ(all.load().adapter_bytes, bytes);
  Request request = testing::request_of(prompt());
  request.adapter = "dora";
  EXPECT_LT(error_of(all.prompt_logits(request), merged("dora"), *request.token_ids),
            testing::logits_tolerance());
}

}  // namespace
}  // namespace heddle
