#include <cmath>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "heddle/ops/sampling.h"

#include "ops/sampling/test/sampling_cases.h"

namespace heddle {
namespace {

constexpr float kUsual = 1.5f, kFlat = 0.2f;  // exponents
constexpr int64_t kVocab = 49152, kRows = 8;

/// Logits whose softmax falls about as rank^-exponent: 1.5 is like a language model, 0.2 nearly
/// flat.
std::vector<float> make_logits(float exponent) {
  std::vector<float> logits(size_t(kRows * kVocab));
  uint32_t state = 1;
  for (float& x : logits) {
    state = state * 1664525u + 1013904223u;
    const float uniform = static_cast<float>((state >> 8) + 1) * 0x1p-24f;
    x = -exponent * std::log(uniform);
  }
  return logits;
}

/// One thread, eight rows.
void run(benchmark::State& state, SamplingRow row, float exponent, bool with_logprobs) {
  const std::vector<float> logits = make_logits(exponent);
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

void add(const std::string& name, SamplingRow row, float exponent, bool with_logprobs = false) {
  benchmark::RegisterBenchmark(
      ("sampling/sample/" + name + "/rows:8/vocab:" + std::to_string(kVocab)).c_str(), run, row,
      exponent, with_logprobs);
}

const bool registered = [] {
  const SamplingRow greedy{.temperature = 0.0f};
  const SamplingRow filters{.temperature = 0.7f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f};
  add("greedy", greedy, kUsual);
  add("greedy_logprobs", greedy, kUsual, true);
  add("temperature", {}, kUsual);
  add("temperature_flat", {}, kFlat);
  add("all_filters", filters, kUsual);
  add("all_filters_flat", filters, kFlat);
  add("top_p_flat", {.top_p = 0.95f}, kFlat);
  return true;
}();

}  // namespace
}  // namespace heddle
