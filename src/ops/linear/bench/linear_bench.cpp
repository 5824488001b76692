#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "heddle/ops/linear.h"

#include "ops/linear/test/linear_cases.h"

namespace heddle {
namespace {

// The shapes of SmolLM2-135M, whose file has layers in Q4_1 and a tied table in Q8_0.
constexpr int64_t kHidden = 576, kKeyValue = 192, kIntermediate = 1536, kVocab = 49152;
constexpr int kLayers = 30;

OwnedWeight random_weight(WeightType type, int64_t out, int64_t in) {
  std::minstd_rand generator(1);
  return {ExecContext{}, type, out, in, random_stored(type, out * in, generator, 0.01f)};
}

/// All products of a decode step: per layer those of q, k, v, then o, then gate and up, then down;
/// at last the head. The weights are far larger than a core's caches and pass by once a step, as
/// they do in use.
struct Step {
  std::vector<OwnedWeight> qkv, o, gate_up, down;
  OwnedWeight head = random_weight(WeightType::kQ8_0, kVocab, kHidden);

  Step() {
    for (int i = 0; i < kLayers; ++i) {
      for (const int64_t out : {kHidden, kKeyValue, kKeyValue}) {
        qkv.push_back(random_weight(WeightType::kQ4_1, out, kHidden));
      }
      o.push_back(random_weight(WeightType::kQ4_1, kHidden, kHidden));
      for (int j = 0; j < 2; ++j) {
        gate_up.push_back(random_weight(WeightType::kQ4_1, kIntermediate, kHidden));
      }
      down.push_back(random_weight(WeightType::kQ4_1, kHidden, kIntermediate));
    }
  }
  static const Step& weights() {
    static const Step step;
    return step;
  }
};

/// The outputs of one call, each with rows of its own in y.
std::vector<LinearOutput> outputs_of(const OwnedWeight* weights, size_t n, int64_t rows, float* y) {
  std::vector<LinearOutput> outputs;
  for (size_t i = 0; i < n; ++i) {
    const PackedWeight& weight = weights[i].view();
    outputs.push_back({host_view(y, {rows, weight.out_features}), weight});
    y += rows * weight.out_features;
  }
  return outputs;
}

void count(benchmark::State& state, int64_t macs, int64_t bytes) {
  state.counters["MAC/s"] = benchmark::Counter(static_cast<double>(state.iterations() * macs),
                                               benchmark::Counter::kIsRate);
  state.SetBytesProcessed(state.iterations() * bytes);
}

/// The head is applied to one row of a prefill, as an engine does, and to all rows of smaller
/// batches.
void run_step(benchmark::State& state, int64_t rows, int num_threads) {
  const Step& step = Step::weights();
  const int64_t head_rows = rows > 32 ? 1 : rows;
  std::vector<float> x(size_t(rows * kIntermediate), 0.1f);
  std::vector<float> y(size_t(rows * 2 * kIntermediate + head_rows * kVocab));
  const ConstTensorView hidden = host_view(x.data(), {rows, kHidden});
  const ConstTensorView wide = host_view(x.data(), {rows, kIntermediate});
  ThreadPool threads(num_threads);
  ExecContext ctx;
  ctx.threads = &threads;
  int64_t macs = 0, bytes = 0;
  std::vector<std::pair<std::vector<LinearOutput>, ConstTensorView>> calls;
  const auto add = [&](const OwnedWeight* weights, size_t n, const ConstTensorView& input) {
    calls.emplace_back(outputs_of(weights, n, input.size(0), y.data()), input);
    for (size_t i = 0; i < n; ++i) {
      const PackedWeight& w = weights[i].view();
      macs += input.size(0) * w.out_features * w.in_features;
      bytes += static_cast<int64_t>(packed_bytes(w.type, w.out_features, w.in_features));
    }
  };
  for (size_t i = 0; i < kLayers; ++i) {
    add(&step.qkv[3 * i], 3, hidden);
    add(&step.o[i], 1, hidden);
    add(&step.gate_up[2 * i], 2, hidden);
    add(&step.down[i], 1, wide);
  }
  add(&step.head, 1, hidden.narrow(0, 0, head_rows));
  for (auto _ : state) {
    for (const auto& [outputs, input] : calls) linear(ctx, outputs, input);
    benchmark::DoNotOptimize(y.data());
  }
  count(state, macs, bytes);
}

/// One product over and over, its weights in cache.
void run_one(benchmark::State& state, WeightType type, int64_t out, int64_t in, int64_t rows) {
  const OwnedWeight weight = random_weight(type, out, in);
  const std::vector<float> x(size_t(rows * in), 0.1f);
  std::vector<float> y(size_t(rows * out));
  for (auto _ : state) {
    linear({}, host_view(y.data(), {rows, out}), host_view(x.data(), {rows, in}), weight.view());
    benchmark::DoNotOptimize(y.data());
  }
  count(state, rows * out * in, static_cast<int64_t>(packed_bytes(type, out, in)));
}

void run_pack(benchmark::State& state, WeightType type) {
  std::minstd_rand generator(1);
  const auto stored = random_stored(type, kIntermediate * 1536, generator);
  OwnedWeight weight(type, kIntermediate, 1536);
  for (auto _ : state) {
    pack_rows({}, weight.bytes(), type, kIntermediate, 1536, 0, kIntermediate, stored);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(stored.size()));
}

/// Bytes are those of the f32 values.
void run_quantize(benchmark::State& state, WeightType type) {
  std::minstd_rand generator(1);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> values(size_t{1} << 20);
  for (float& value : values) value = normal(generator);
  std::vector<std::byte> stored(stored_bytes(type, std::ssize(values)));
  for (auto _ : state) quantize({}, stored, type, values);
  state.SetBytesProcessed(state.iterations() * std::ssize(values) * int64_t{sizeof(float)});
}

bool add_all() {
  using benchmark::RegisterBenchmark;
  for (const int threads : {1, 2}) {
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 8, 12, 16, 32, 512}) {
      const std::string label =
          "linear/step/rows:" + std::to_string(rows) + "/threads:" + std::to_string(threads);
      RegisterBenchmark(label.c_str(), run_step, rows, threads)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
  for (const WeightType type : kAllWeightTypes) {
    for (const int64_t rows : {1, 8, 512}) {
      const std::string label =
          std::string("linear/one/") + name(type) + "/rows:" + std::to_string(rows);
      RegisterBenchmark(label.c_str(), run_one, type, int64_t{768}, int64_t{1536}, rows)
          ->Unit(benchmark::kMicrosecond);
    }
    RegisterBenchmark((std::string("linear/pack/") + name(type)).c_str(), run_pack, type)
        ->Unit(benchmark::kMillisecond);
    if (!can_quantize(type)) continue;
    RegisterBenchmark((std::string("linear/quantize/") + name(type)).c_str(), run_quantize, type)
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}

const bool registered = add_all();

}  // namespace
}  // namespace heddle
