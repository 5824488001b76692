// Merges of two adapters of rank 32 on all linear layers of a Llama of 8B, whose values are random
// and in bf16. Layers share their values, so that these take little memory.
#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "model/adapters/merge/merged_adapter.h"

namespace heddle {
namespace {

using model::AdapterMergeRule;

constexpr int64_t kBenchRank = 32, kBenchLayers = 32;
constexpr std::pair<const char*, std::pair<int64_t, int64_t>> kBenchModules[] = {
    {"self_attn.q_proj", {4096, 4096}}, {"self_attn.k_proj", {4096, 1024}},
    {"self_attn.v_proj", {4096, 1024}}, {"self_attn.o_proj", {4096, 4096}},
    {"mlp.gate_proj", {4096, 14336}},   {"mlp.up_proj", {4096, 14336}},
    {"mlp.down_proj", {14336, 4096}}};

class LargeAdapter final : public model::Adapter {
 public:
  explicit LargeAdapter(uint32_t seed) : Adapter("bench") {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, 0.02f);
    for (const auto& [name, dims] : kBenchModules) {
      const auto [in, out] = dims;
      const auto values = [&](int64_t count) {
        std::vector<bfloat16>& to = memory_.emplace_back(static_cast<size_t>(count));
        for (bfloat16& value : to) value = from_float<bfloat16>(normal(random));
        return reinterpret_cast<const std::byte*>(to.data());
      };
      model::LowRank pair{.rank = kBenchRank, .in_features = in, .out_features = out};
      pair.scale = 2.0f;
      pair.dtype = DType::kBFloat16;
      pair.a = values(kBenchRank * in);
      pair.b = values(out * kBenchRank);
      for (int64_t layer = 0; layer < kBenchLayers; ++layer) {
        pairs_.push_back({pair, layer, model::find_linear_module(name)});
      }
    }
  }
  void check_fits(const model::ModelDims& /*dims*/) const override {}
  [[nodiscard]] std::vector<std::string> warnings(const model::ModelDims&) const override {
    return {};
  }

 private:
  std::deque<std::vector<bfloat16>> memory_;
};

void merge_two(benchmark::State& state, AdapterMergeRule::Method method, int num_threads) {
  const auto first = std::make_shared<LargeAdapter>(1), second = std::make_shared<LargeAdapter>(2);
  ThreadPool threads(num_threads);
  int64_t num_values = 0;
  for (const model::AdapterPair& pair : first->pairs()) {
    num_values += pair.rank * (pair.in_features + pair.out_features);
  }
  for (auto _ : state) {
    std::vector<model::MergePart> parts = {{"first", first, 0.7f}, {"second", second, 0.5f}};
    model::MergedAdapter merged("bench", std::move(parts), {.method = method, .density = 0.5});
    merged.load(threads);
    benchmark::DoNotOptimize(merged.pairs().front().a);
  }
  state.SetItemsProcessed(state.iterations() * num_values);
}

const bool merges_are_added = [] {
  using Method = AdapterMergeRule::Method;
  const int all = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  for (const auto& [name, method] : {std::pair("ties", Method::kTies),
                                     {"dare_linear", Method::kDareLinear},
                                     {"dare_ties", Method::kDareTies},
                                     {"magnitude_prune", Method::kMagnitudePrune}}) {
    for (const int num_threads : std::set<int>{1, all}) {
      const std::string at = std::string(name) + "/threads:" + std::to_string(num_threads);
      benchmark::RegisterBenchmark(("adapters/merge/" + at).c_str(), merge_two, method, num_threads)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
  return true;
}();

}  // namespace
}  // namespace heddle
