#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "heddle/ops/sampling.h"

#include "ops/sampling/sampling_cases.h"

namespace heddle {
namespace {

constexpr int64_t kVocab = 49152, kRows = 8;

/// Logits as of a language model: few stand out from a broad rest. peak: how far.
std::vector<float> make_logits(float peak) {
  std::vector<float> logits(size_t(kRows * kVocab));
  uint32_t state = 1;
  for (float& x : logits) {
    state = state * 1664525u + 1013904223u;
    const float uniform = static_cast<float>(state >> 8) * 0x1p-24f;
    x = 4.0f * uniform + (uniform > 0.9995f ? peak * (uniform - 0.9995f) * 2000.0f : 0.0f);
  }
  return logits;
}

/// One thread, eight rows.
void run(benchmark::State& state, SamplingRow row, float peak, bool with_logprobs) {
  const std::vector<float> logits = make_logits(peak);
  std::vector<int32_t> tokens(size_t{kRows});
  std::vector<float> logprobs(size_t{kRows});
  const SamplingContext ctx(kRows, kVocab);
  const TensorView logprobs_view =
      with_logprobs ? host_view(logprobs.data(), {kRows}) : TensorView{};
  for (auto _ : state) {
    ++row.step;
    const SamplingColumns columns(std::vector<SamplingRow>(size_t{kRows}, row));
    sample(ctx, host_view(tokens.data(), {kRows}), logprobs_view,
           host_view(logits.data(), {kRows, kVocab}), columns.table());
    benchmark::DoNotOptimize(tokens.data());
  }
  state.SetItemsProcessed(state.iterations() * kRows);
}

void add(const std::string& name, SamplingRow row, float peak, bool with_logprobs = false) {
  benchmark::RegisterBenchmark(
      ("sampling/sample/" + name + "/rows:8/vocab:" + std::to_string(kVocab)).c_str(), run, row,
      peak, with_logprobs);
}

const bool registered = [] {
  const SamplingRow greedy{.temperature = 0.0f};
  const SamplingRow usual{.temperature = 0.7f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f};
  add("greedy", greedy, 10.0f);
  add("greedy_logprobs", greedy, 10.0f, true);
  add("temperature", {}, 10.0f);
  add("temperature_flat", {}, 0.0f);
  add("all_filters", usual, 10.0f);
  add("all_filters_flat", usual, 0.0f);
  add("top_p_flat", {.top_p = 0.95f}, 0.0f);
  return true;
}();

}  // namespace
}  // namespace heddle
