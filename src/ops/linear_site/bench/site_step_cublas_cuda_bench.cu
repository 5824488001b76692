// Times modelled decode steps of an 8B Llama and of SmolLM2-135M: the products of their linear
// sites without adapters and with them on each route, next to cuBLASLt's products alone and with
// lora_apply after each, which rounds twice.
//   bench_site_step_cublas_cuda --json FILE [--quick] [--capability N]
// 32 or 30 layers of qkv, o, gate_up and down with weights of their own (14 GB, 212 MB), in one
// graph; x of a site is the y of the site before, so each launch waits for the previous one, as in
// a model. Norms, attention and activations are left out. Adapters have rank 16. cuBLASLt is the
// fastest of its suggestions for each kind of site, measured in the same run. Forms take turns,
// replay by replay. Then adapters of several ranks, in memory that is scattered, and few in use of
// many, each next to an even batch that reads as many bytes (to_even).

#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "heddle/ops/linear_site.h"

#include "ops/linear_site/call/site_kernels.h"
#include "ops/lora/bench/lora_bench_cuda.h"
#include "ops/lora/bench/lora_cublas_bench_cuda.h"
#include "ops/lora/bench/lora_sites_bench_cuda.h"

namespace heddle::lora_bench {
namespace {

constexpr int kRank = 16, kLoaded = 64, kQuickLayers = 4, kMaxRows = 128;
constexpr int kMaxRank = 128;  // of adapters of several ranks
constexpr int kNumSites = 4;

struct StepCell {
  int64_t rows;
  int adapters;
};

struct StepModel {
  const char* name;
  const Site* sites[kNumSites];  // of a layer, in order
  int layers;
  std::vector<StepCell> cells;
};
const StepModel kLlama{.name = "8B Llama",
                       .sites = {&kQkv, &kO, &kGateUp, &kDown},
                       .layers = 32,
                       .cells = {{1, 1}, {8, 8}, {32, 8}, {32, 32}, {64, 8}, {64, 64}, {128, 8}}};
const Site kSmallQkv{"qkv", 576, {576, 192, 192}};
const Site kSmallO{"o", 576, {576}};
const Site kSmallGateUp{"gate_up", 576, {1536, 1536}};
const Site kSmallDown{"down", 1536, {576}};
const StepModel kSmolLM{.name = "SmolLM2-135M",
                        .sites = {&kSmallQkv, &kSmallO, &kSmallGateUp, &kSmallDown},
                        .layers = 30,
                        .cells = {{1, 1}, {8, 8}, {32, 8}, {32, 32}}};

/// The same work with adapters that are not alike, or lie elsewhere: two batches whose times should
/// be the same, since they read as many bytes.
struct StepPair {
  const char *name, *even_name;
  Cell cell, even;  // of the first site
};
const StepPair kPairs[] = {
    {"8 adapters of ranks 8 to 128",
     "8 adapters of rank 48",
     {.site = &kQkv,
      .rank = 48,
      .tokens = 32,
      .adapters = 8,
      .ranks = {8, 128, 16, 64, 24, 64, 32, 48}},
     {.site = &kQkv, .rank = 48, .tokens = 32, .adapters = 8}},
    {"32 adapters, scattered",
     "32 adapters, one behind the other",
     {.site = &kQkv, .rank = kRank, .tokens = 32, .adapters = 32, .is_scattered = true},
     {.site = &kQkv, .rank = kRank, .tokens = 32, .adapters = 32}},
    {"3 of 512 adapters",
     "3 of 3 adapters",
     {.site = &kQkv, .rank = kRank, .tokens = 32, .adapters = 3, .loaded = 512},
     {.site = &kQkv, .rank = kRank, .tokens = 32, .adapters = 3}},
};

/// The adapters of all sites and layers.
class StepAdapters {
 public:
  StepAdapters(const ExecContext& ctx, const StepModel& model, Cell cell, int layers) {
    for (const Site* site : model.sites) {
      cell.site = site;
      std::deque<SiteWeights>& of_layers = weights_.emplace_back();
      for (int layer = 0; layer < layers; ++layer) of_layers.emplace_back(ctx, cell);
    }
  }
  [[nodiscard]] LinearAdapters of(int s, int layer, const Batch& batch) const {
    const SiteWeights& weights = weights_[size_t(s)][size_t(layer)];
    return {weights.a(), weights.b(), batch.planned()};
  }

 private:
  std::deque<std::deque<SiteWeights>> weights_;  // [site][layer]
};

/// One kind of site, with the weights of all layers.
struct StepSite {
  StepSite(const Site& of, int layers)
      : site(of), in(of.in_features), out(of.sum_out_features()), y(int64_t{kMaxRows} * out, 1) {
    for (int layer = 0; layer < layers; ++layer) {
      base.emplace_back(out * in, 1 / std::sqrt(double(in)));
    }
  }
  [[nodiscard]] TensorView y_rows(int64_t rows) const { return y.view(rows, out); }
  [[nodiscard]] ConstTensorView weight(int layer) const {
    return base[size_t(layer)].view(out, in);
  }

  const Site& site;
  int64_t in, out;
  RandomValues y;
  std::deque<RandomValues> base;  // of each layer
};

class Step {
 public:
  Step(Bench& bench, const StepModel& model)
      : bench_(bench), model_(model), num_layers_(bench.is_quick() ? kQuickLayers : model.layers) {
    size_t workspace = 0;
    for (const Site* site : model.sites) {
      sites_.emplace_back(*site, num_layers_);
      workspace = std::max(workspace, linear_site_workspace_bytes(kGpu, kMaxRows, site->in_features,
                                                                  site->sum_out_features(),
                                                                  site->num_slices(), kMaxRank));
    }
    bench.context().reserve_workspace(workspace);
  }

  [[nodiscard]] int num_layers() const { return num_layers_; }
  /// `adapters`: kLoaded, of rank kRank.
  void time_cell(const StepCell& cell, const StepAdapters& adapters) {
    const Batch batch(bench_.exec(), {.site = model_.sites[0],
                                      .rank = kRank,
                                      .tokens = cell.rows,
                                      .adapters = cell.adapters,
                                      .loaded = kLoaded});
    std::deque<Product> products;
    for (int s = 0; s < kNumSites; ++s) choose_product(products, s, cell.rows);
    const auto product = [&](int s, int layer) {
      products[size_t(s)](bench_.stream(), sites_[size_t(s)].y_rows(cell.rows), x_of(s, cell.rows),
                          view(sites_[size_t(s)].weight(layer)));
    };
    const auto lora = [&](int s, int layer) { apply(s, cell.rows, adapters.of(s, layer, batch)); };
    const Forms forms{
        {"cuBLASLt, base", each(product)},
        {"cuBLASLt, lora_apply behind", each([&](int s, int layer) {
           product(s, layer);
           lora(s, layer);
         })},
        {"linear_site, base", each([&](int s, int layer) { run(s, layer, cell.rows, nullptr); })},
        {"linear_site, adapters inside", inside(cell.rows, batch, adapters)},
        {"linear_site, adapters around", inside(cell.rows, batch, adapters, SiteRoute::kAround)},
        {"linear_site, adapters apart", inside(cell.rows, batch, adapters, SiteRoute::kApart)},
    };
    const auto samples = time_in_turns(forms);
    const double base_us = median(samples[0]);
    for (size_t g = 0; g < forms.size(); ++g) {
      const bool has_lora = g != 0 && g != 2;
      add(bench_,
          {.op = "decode_step",
           .site = model_.name,
           .rank = has_lora ? kRank : 0,
           .tokens = cell.rows,
           .adapters = has_lora ? cell.adapters : 0,
           .form = forms[g].first,
           .num_calls = 1,
           .floor_us = floor_us(cell.rows, has_lora ? cell.adapters * kRank : 0),
           .samples = samples[g],
           .facts = {{"layers", num_layers_}, {"to_cublas_base", median(samples[g]) / base_us}}});
    }
  }

  void time_pair(const StepPair& pair) {
    const ExecContext ctx = bench_.exec();
    HEDDLE_CHECK(pair.cell.weight_bytes() == pair.even.weight_bytes(), "the bytes differ");
    const StepAdapters adapters(ctx, model_, pair.cell, num_layers_),
        even(ctx, model_, pair.even, num_layers_);
    const Batch batch(ctx, pair.cell), even_batch(ctx, pair.even);
    const Forms forms{{pair.even_name, inside(pair.even.tokens, even_batch, even)},
                      {pair.name, inside(pair.cell.tokens, batch, adapters)}};
    const auto samples = time_in_turns(forms);
    const double even_us = median(samples[0]);
    for (size_t g = 0; g < forms.size(); ++g) {
      const Cell& cell = g == 0 ? pair.even : pair.cell;
      add(bench_, {.op = "decode_step",
                   .site = model_.name,
                   .rank = cell.rank,
                   .tokens = cell.tokens,
                   .adapters = cell.adapters,
                   .form = forms[g].first,
                   .num_calls = 1,
                   .floor_us = floor_us(cell.tokens, int64_t{cell.adapters} * cell.rank),
                   .samples = samples[g],
                   .facts = {{"layers", num_layers_}, {"to_even", median(samples[g]) / even_us}}});
    }
  }

 private:
  using Forms = std::vector<std::pair<const char*, std::function<void()>>>;

  /// The step, of run_site(site, layer).
  template <class F>
  [[nodiscard]] std::function<void()> each(F run_site) const {
    return [this, run_site] {
      for (int layer = 0; layer < num_layers_; ++layer) {
        for (int s = 0; s < kNumSites; ++s) run_site(s, layer);
      }
    };
  }
  /// On `route` in place of the selected one.
  [[nodiscard]] std::function<void()> inside(int64_t rows, const Batch& batch,
                                             const StepAdapters& adapters,
                                             std::optional<SiteRoute> route = {}) const {
    return each([this, rows, &batch, &adapters, route](int s, int layer) {
      const LinearAdapters of_site = adapters.of(s, layer, batch);
      run(s, layer, rows, &of_site, route);
    });
  }
  [[nodiscard]] std::vector<std::vector<double>> time_in_turns(const Forms& forms) {
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
    return samples;
  }
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

  void apply(int s, int64_t rows, const LinearAdapters& adapters) const {
    const StepSite& site = sites_[size_t(s)];
    std::vector<LoraSlice> slices;
    int64_t column = 0;
    for (const int64_t width : site.site.out_features) {
      slices.push_back({site.y_rows(rows).narrow(1, column, width)});
      column += width;
    }
    lora_apply(bench_.exec(), slices, x_of(s, rows), adapters.a, adapters.b, adapters.batch);
  }

  void run(int s, int layer, int64_t rows, const LinearAdapters* adapters,
           std::optional<SiteRoute> route = {}) const {
    const StepSite& site = sites_[size_t(s)];
    std::vector<LinearSlice> slices;
    int64_t column = 0;
    for (const int64_t width : site.site.out_features) {
      slices.push_back({.y = site.y_rows(rows).narrow(1, column, width),
                        .weight = site.weight(layer).narrow(0, column, width)});
      column += width;
    }
    const ExecContext ctx = bench_.exec();
    if (!route) return linear_site(ctx, slices, x_of(s, rows), LinearPath::kDecode, adapters);
    cuda::linear_site::run(ctx, slices, x_of(s, rows), LinearPath::kDecode, adapters,
                           {.route = route});
  }

  /// ranks: of all adapters in use, together.
  [[nodiscard]] double floor_us(int64_t rows, int64_t ranks) const {
    int64_t bytes = 0;
    for (const StepSite& site : sites_) {
      bytes += site.out * site.in + rows * (site.in + site.out) +
               ranks * (site.site.num_slices() * site.in + site.out);
    }
    return double(bytes * kElement * num_layers_) / kReadBytesPerUs;
  }

  Bench& bench_;
  const StepModel& model_;
  int num_layers_;
  CublasLt cublas_;
  std::deque<StepSite> sites_;
};

/// All cells of a model.
void time_cells(Bench& bench, Step& step, const StepModel& model) {
  const StepAdapters adapters(
      bench.context().exec(), model,
      {.site = model.sites[0], .rank = kRank, .tokens = kMaxRows, .adapters = kLoaded},
      step.num_layers());
  for (const StepCell& cell : model.cells) step.time_cell(cell, adapters);
}

void run(Bench& bench) {
  {
    Step step(bench, kSmolLM);
    time_cells(bench, step, kSmolLM);
  }
  Step step(bench, kLlama);
  time_cells(bench, step, kLlama);
  for (const StepPair& pair : kPairs) step.time_pair(pair);
}

}  // namespace
}  // namespace heddle::lora_bench

int main(int argc, char** argv) {
  return heddle::testing::run_bench(argc, argv, heddle::lora_bench::run);
}
