// Times a modelled decode step of an 8B Llama: the products of its 128 linear sites with and
// without adapters inside, beside cuBLASLt's products alone and with lora_apply behind each.
//   bench_site_step_cublas_cuda --json FILE [--quick]
// 32 layers of qkv, o, gate_up and down with weights of their own (14 GB), in one graph; x of a
// site is the y of the site before, so each launch waits for the one in front, as in a model.
// Norms, attention and activations are left out. Adapters have rank 16. cuBLASLt is the fastest of
// its suggestions for each kind of site, measured in the same run. Forms take turns, replay by
// replay.

#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "heddle/ops/linear_site.h"

#include "ops/lora/bench/lora_bench_cuda.h"
#include "ops/lora/bench/lora_cublas_bench_cuda.h"
#include "ops/lora/bench/lora_sites_bench_cuda.h"

namespace heddle::lora_bench {
namespace {

constexpr int kRank = 16, kLoaded = 64, kLayers = 32, kQuickLayers = 4, kMaxRows = 128;
const Site* const kSites[] = {&kQkv, &kO, &kGateUp, &kDown};  // of a layer, in order
constexpr int kNumSites = 4;

struct StepCell {
  int64_t rows;
  int adapters;
};
constexpr StepCell kCells[] = {{1, 1}, {8, 8}, {32, 8}, {32, 32}, {64, 8}, {64, 64}, {128, 8}};

/// One kind of site, with the weights of all layers.
struct StepSite {
  StepSite(Bench& bench, const Site& of, int layers)
      : site(of), in(of.in_features), out(of.sum_out_features()), y(int64_t{kMaxRows} * out, 1) {
    const Cell cell{.site = &of, .rank = kRank, .tokens = kMaxRows, .adapters = kLoaded};
    for (int layer = 0; layer < layers; ++layer) {
      base.emplace_back(out * in, 1 / std::sqrt(double(in)));
      adapters.emplace_back(bench.context().exec(), cell);
    }
  }
  [[nodiscard]] TensorView y_rows(int64_t rows) const { return y.view(rows, out); }
  [[nodiscard]] ConstTensorView weight(int layer) const {
    return base[size_t(layer)].view(out, in);
  }

  const Site& site;
  int64_t in, out;
  RandomValues y;
  std::deque<RandomValues> base;     // of each layer
  std::deque<SiteWeights> adapters;  // of each layer
};

class Step {
 public:
  explicit Step(Bench& bench)
      : bench_(bench), num_layers_(bench.is_quick() ? kQuickLayers : kLayers) {
    size_t workspace = 0;
    for (const Site* site : kSites) {
      sites_.emplace_back(bench, *site, num_layers_);
      workspace = std::max(workspace, linear_site_workspace_bytes(kGpu, kMaxRows, site->in_features,
                                                                  site->sum_out_features(),
                                                                  site->num_slices(), kRank));
    }
    bench.context().reserve_workspace(workspace);
  }

  void time_cell(const StepCell& cell) {
    const Batch batch(bench_.context().exec(), {.site = &kQkv,
                                                .rank = kRank,
                                                .tokens = cell.rows,
                                                .adapters = cell.adapters,
                                                .loaded = kLoaded});
    std::deque<Product> products;
    for (int s = 0; s < kNumSites; ++s) choose_product(products, s, cell.rows);
    const auto each = [&](const auto& run_site) {
      return [&, run_site] {
        for (int layer = 0; layer < num_layers_; ++layer) {
          for (int s = 0; s < kNumSites; ++s) run_site(s, layer);
        }
      };
    };
    const auto product = [&](int s, int layer) {
      products[size_t(s)](bench_.stream(), sites_[size_t(s)].y_rows(cell.rows), x_of(s, cell.rows),
                          view(sites_[size_t(s)].weight(layer)));
    };
    const auto lora = [&](int s, int layer) { apply(s, layer, cell.rows, batch); };
    const std::pair<const char*, std::function<void()>> forms[] = {
        {"cuBLASLt, base", each(product)},
        {"cuBLASLt, lora_apply behind", each([&](int s, int layer) {
           product(s, layer);
           lora(s, layer);
         })},
        {"linear_site, base", each([&](int s, int layer) { run(s, layer, cell.rows, nullptr); })},
        {"linear_site, adapters inside",
         each([&](int s, int layer) { run(s, layer, cell.rows, &batch); })},
    };
    std::deque<testing::RecordedGraph> graphs;
    for (const auto& [name, record] : forms) graphs.emplace_back(bench_.stream(), record);
    std::vector<std::vector<double>> samples(graphs.size());
    testing::ReplayTimer replay_us;
    const testing::Replays replays{.warm_up = 3, .timed = 15};
    for (int i = 0; i < replays.warm_up + replays.timed; ++i) {
      for (size_t g = 0; g < graphs.size(); ++g) {
        const double us = replay_us(graphs[g], bench_.stream());
        if (i >= replays.warm_up) samples[g].push_back(us);
      }
    }
    const double base_us = median(samples[0]);
    for (size_t g = 0; g < graphs.size(); ++g) {
      const bool has_lora = g % 2 == 1;
      add(bench_,
          {.op = "decode_step",
           .site = "8B Llama",
           .rank = has_lora ? kRank : 0,
           .tokens = cell.rows,
           .adapters = has_lora ? cell.adapters : 0,
           .form = forms[g].first,
           .num_calls = 1,
           .floor_us = floor_us(cell, has_lora),
           .samples = samples[g],
           .facts = {{"layers", num_layers_}, {"to_cublas_base", median(samples[g]) / base_us}}});
    }
  }

 private:
  static TensorView view(const ConstTensorView& t) {
    return {const_cast<std::byte*>(t.raw()), t.dtype(), t.device(), t.shape()};
  }
  /// y of the site before, as many columns as x has.
  [[nodiscard]] TensorView x_of(int s, int64_t rows) const {
    const StepSite& before = sites_[size_t((s + kNumSites - 1) % kNumSites)];
    return before.y_rows(rows).narrow(1, 0, sites_[size_t(s)].in);
  }

  void choose_product(std::deque<Product>& products, int s, int64_t rows) {
    const StepSite& site = sites_[size_t(s)];
    Product& product =
        products.emplace_back(cublas_, rows, site.in, site.out, x_of(s, rows).stride(0));
    product.choose([&] {
      return testing::time_in_graph(bench_.stream(), num_layers_,
                                    [&](int layer) {
                                      product(bench_.stream(), site.y_rows(rows), x_of(s, rows),
                                              view(site.weight(layer)));
                                    },
                                    {.warm_up = 1, .timed = 3});
    });
  }

  void apply(int s, int layer, int64_t rows, const Batch& batch) const {
    const StepSite& site = sites_[size_t(s)];
    std::vector<LoraSlice> slices;
    int64_t column = 0;
    for (const int64_t width : site.site.out_features) {
      slices.push_back({site.y_rows(rows).narrow(1, column, width)});
      column += width;
    }
    const SiteWeights& weights = site.adapters[size_t(layer)];
    lora_apply(bench_.context().exec(), slices, x_of(s, rows), weights.a(), weights.b(),
               batch.planned());
  }

  void run(int s, int layer, int64_t rows, const Batch* batch) const {
    const StepSite& site = sites_[size_t(s)];
    std::vector<LinearSlice> slices;
    int64_t column = 0;
    for (const int64_t width : site.site.out_features) {
      slices.push_back({.y = site.y_rows(rows).narrow(1, column, width),
                        .weight = site.weight(layer).narrow(0, column, width)});
      column += width;
    }
    LinearAdapters adapters;
    if (batch != nullptr) {
      const SiteWeights& weights = site.adapters[size_t(layer)];
      adapters = {weights.a(), weights.b(), batch->planned()};
    }
    linear_site(bench_.context().exec(), slices, x_of(s, rows), LinearPath::kDecode,
                batch != nullptr ? &adapters : nullptr);
  }

  [[nodiscard]] double floor_us(const StepCell& cell, bool has_lora) const {
    int64_t bytes = 0;
    for (const StepSite& site : sites_) {
      bytes += site.out * site.in + cell.rows * (site.in + site.out);
      if (has_lora)
        bytes += int64_t{cell.adapters} * kRank * (site.site.num_slices() * site.in + site.out);
    }
    return double(bytes * kElement * num_layers_) / kReadBytesPerUs;
  }

  Bench& bench_;
  int num_layers_;
  CublasLt cublas_;
  std::deque<StepSite> sites_;
};

void run(Bench& bench) {
  Step step(bench);
  for (const StepCell& cell : kCells) step.time_cell(cell);
}

}  // namespace
}  // namespace heddle::lora_bench

int main(int argc, char** argv) {
  return heddle::testing::run_bench(argc, argv, heddle::lora_bench::run);
}
