// Times the linear sites of an 8B Llama for prompts: the products with and without adapters inside,
// next to cuBLASLt's products alone and with lora_apply after them.
//   bench_site_prompt_cublas_cuda --json FILE [--quick] [--capability N]
// A sample is one replay of a graph of calls whose x, weights and y come from memory: each call has
// others than the one before. cuBLASLt is the fastest of its suggestions, measured in the same run.
// Adapters have rank 16, and rows of a prompt follow each other (or rows of all adapters take
// turns). Forms take turns, replay by replay, since the chip's power decides its clock.

#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/ops/linear_site.h"

#include "ops/lora/bench/lora_bench_cuda.h"
#include "ops/lora/bench/lora_cublas_bench_cuda.h"
#include "ops/lora/bench/lora_sites_bench_cuda.h"

namespace heddle::lora_bench {
namespace {

constexpr int kRank = 16, kAdapters = 8, kCopies = 4, kCalls = 8;
constexpr int64_t kRows[] = {512, 2048, 8192};
constexpr int64_t kMaxRows = 8192;
const Site* const kSites[] = {&kQkv, &kO, &kGateUp, &kDown};

/// One site: x, weights, y and adapters, a few times.
class PromptSite {
 public:
  PromptSite(Bench& bench, const Site& site)
      : bench_(bench), site_(site), in_(site.in_features), out_(site.sum_out_features()) {
    const Cell cell{.site = &site, .rank = kRank, .tokens = kMaxRows, .adapters = kAdapters};
    for (int i = 0; i < kCopies; ++i) {
      x_.emplace_back(kMaxRows * in_, 1);
      weights_.emplace_back(out_ * in_, 1 / std::sqrt(double(in_)));
      y_.emplace_back(kMaxRows * out_, 1);
      adapters_.emplace_back(bench.context().exec(), cell);
    }
    bench.context().reserve_workspace(
        linear_site_workspace_bytes(kGpu, kMaxRows, in_, out_, site.num_slices(), kRank));
  }

  void time(int64_t rows) {
    Product product(cublas_, rows, in_, out_);
    const auto cublas = [&](int i) {
      product(bench_.stream(), y(i, rows), x(i, rows), weights_[size_t(i)].view(out_, in_));
    };
    product.choose([&] {
      return testing::time_in_graph(bench_.stream(), kCopies, cublas, {.warm_up = 1, .timed = 3});
    });
    Cell cell{.site = &site_, .rank = kRank, .tokens = rows, .adapters = kAdapters};
    const Batch mixed(bench_.exec(), cell);
    cell.is_prefill = true;
    const Batch segments(bench_.exec(), cell);
    const std::pair<const char*, std::function<void(int)>> forms[] = {
        {"cuBLASLt, base", cublas},
        {"cuBLASLt, lora_apply behind", [&](int i) { cublas(i), apply(i, rows, segments); }},
        {"linear_site, base", [&](int i) { run(i, rows, nullptr); }},
        {"linear_site, adapters inside", [&](int i) { run(i, rows, &segments); }},
        {"linear_site, adapters inside, rows mixed", [&](int i) { run(i, rows, &mixed); }},
    };
    std::deque<testing::RecordedGraph> graphs;
    for (const auto& form : forms) {
      graphs.emplace_back(bench_.stream(), [&] {
        for (int i = 0; i < kCalls; ++i) form.second(i % kCopies);
      });
    }
    std::vector<std::vector<double>> samples(graphs.size());
    testing::ReplayTimer replay_us;
    const testing::Replays replays{.warm_up = 2, .timed = bench_.is_quick() ? 3 : 11};
    for (int i = 0; i < replays.warm_up + replays.timed; ++i) {
      for (size_t g = 0; g < graphs.size(); ++g) {
        const double us = replay_us(graphs[g], bench_.stream()) / kCalls;
        if (i >= replays.warm_up) samples[g].push_back(us);
      }
    }
    const double base_us = median(samples[0]);
    for (size_t g = 0; g < graphs.size(); ++g) {
      const bool has_lora = g != 0 && g != 2;
      const double us = median(samples[g]);
      add(bench_, {.op = "linear_site",
                   .site = site_.name,
                   .rank = has_lora ? kRank : 0,
                   .tokens = rows,
                   .adapters = has_lora ? kAdapters : 0,
                   .form = forms[g].first,
                   .num_calls = kCalls,
                   .floor_us = floor_us(rows),
                   .samples = samples[g],
                   .facts = {{"tflops_of_product", 2e-6 * double(rows * in_ * out_) / us},
                             {"to_cublas_base", us / base_us}}});
    }
  }

 private:
  [[nodiscard]] TensorView x(int i, int64_t rows) const { return x_[size_t(i)].view(rows, in_); }
  [[nodiscard]] TensorView y(int i, int64_t rows) const { return y_[size_t(i)].view(rows, out_); }
  void apply(int i, int64_t rows, const Batch& batch) const {
    std::vector<LoraSlice> slices;
    int64_t column = 0;
    for (const int64_t width : site_.out_features) {
      slices.push_back({y(i, rows).narrow(1, column, width)});
      column += width;
    }
    const SiteWeights& weights = adapters_[size_t(i)];
    lora_apply(bench_.exec(), slices, x(i, rows), weights.a(), weights.b(), batch.planned());
  }
  void run(int i, int64_t rows, const Batch* batch) const {
    std::vector<LinearSlice> slices;
    const ConstTensorView weight = weights_[size_t(i)].view(out_, in_);
    int64_t column = 0;
    for (const int64_t width : site_.out_features) {
      slices.push_back(
          {.y = y(i, rows).narrow(1, column, width), .weight = weight.narrow(0, column, width)});
      column += width;
    }
    LinearAdapters adapters;
    if (batch != nullptr) {
      const SiteWeights& weights = adapters_[size_t(i)];
      adapters = {weights.a(), weights.b(), batch->planned()};
    }
    linear_site(bench_.exec(), slices, x(i, rows), LinearPath::kPrompt,
                batch != nullptr ? &adapters : nullptr);
  }
  /// The products at the chip's rate for dense f16 and bf16, as its data sheet has it.
  [[nodiscard]] double floor_us(int64_t rows) const {
    constexpr double kFlopsPerUs = 989.4e6;
    return 2 * double(rows * in_ * out_) / kFlopsPerUs;
  }

  Bench& bench_;
  const Site& site_;
  int64_t in_, out_;
  CublasLt cublas_;
  std::deque<RandomValues> x_, weights_, y_;
  std::deque<SiteWeights> adapters_;
};

void run(Bench& bench) {
  for (const Site* site : kSites) {
    PromptSite of_site(bench, *site);
    for (const int64_t rows : kRows) of_site.time(rows);
  }
}

}  // namespace
}  // namespace heddle::lora_bench

int main(int argc, char** argv) {
  return heddle::testing::run_bench(argc, argv, heddle::lora_bench::run);
}
