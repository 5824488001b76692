// Times a modelled decode step of an 8B Llama: the products of its 128 linear sites by cuBLASLt and
// LoRA of all of them, in one graph.
//   bench_lora_step_cublas_cuda --json FILE [--quick]
// 32 layers of qkv, o, gate_up and down; 32 rows, 8 adapters of rank 16; every site has weights of
// its own (14 GB). What depends on what is the order of the stream alone: norms, attention and
// activations are left out, so x is the same for all layers. In a model x of a site comes from the
// y of the one before; so LoRA of a site may overlap with the product of that site and with no
// other, but weights may be fetched at any time. The forms are different answers to that; they take
// turns, replay by replay.

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "core/device_bytes.h"
#include "ops/lora/bench/lora_bench_cuda.h"
#include "ops/lora/bench/lora_cublas_bench_cuda.h"
#include "ops/lora/bench/lora_sites_bench_cuda.h"

namespace heddle::lora_bench {
namespace {

constexpr int64_t kTokens = 32;
constexpr int kAdapters = 8, kRank = 16;
constexpr int kLayers = 32, kQuickLayers = 4;
constexpr int kMaxSlices = 3;
const Site* const kSites[] = {&kQkv, &kO, &kGateUp, &kDown};  // of a layer, in order

// Reads `count` vectors into the L2 cache, to be kept there longer than others where kKeeps. Any
// grid and block. The asm is volatile, so the loads stay although nothing uses their values.
template <bool kKeeps>
__global__ void fetch_kernel(const uint4* vectors, int64_t count) {
  uint64_t policy = 0;
  if constexpr (kKeeps) {
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  }
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
#pragma unroll 8
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    uint4 v;
    if constexpr (kKeeps) {
      asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                   : "l"(vectors + i), "l"(policy));
    } else {
      asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                   : "l"(vectors + i));
    }
  }
}

/// Where LoRA of a site runs.
enum class Form {
  kNone,
  kAfter,             // lora_apply after the product
  kShrinkBeside,      // lora_shrink of each slice during the product, lora_expand of each after it
  kShrinkBesideEach,  // likewise, each slice on a stream of its own
  kShrinkBesideOne,   // likewise at sites of one slice; the others as kAfter
  kFetchBeside,       // a kernel brings the weights into L2 during the product; lora_apply after it
  kFetchBesideKeep,   // the same, and asks the cache to keep them
};

struct NamedForm {
  Form form;
  const char* name;
};
constexpr NamedForm kForms[] = {
    {Form::kNone, "base products alone"},
    {Form::kAfter, "apply after"},
    {Form::kShrinkBeside, "shrink beside"},
    {Form::kShrinkBesideEach, "shrink beside, slices apart"},
    {Form::kShrinkBesideOne, "shrink beside if one slice"},
    {Form::kFetchBeside, "fetch beside"},
    {Form::kFetchBesideKeep, "fetch beside and keep"},
};

/// One of the four kinds of sites, with the weights of all layers.
struct StepSite {
  StepSite(Bench& bench, const CublasLt& cublas, const Site& site, int layers)
      : cell{.site = &site, .rank = kRank, .tokens = kTokens, .adapters = kAdapters},
        in(site.in_features),
        out(site.sum_out_features()),
        x(kTokens * in, 1),
        y(kTokens * out, 1),
        product(cublas, kTokens, in, out) {
    for (int layer = 0; layer < layers; ++layer) {
      base.emplace_back(out * in, 1 / std::sqrt(double(in)));
      adapters.emplace_back(bench.context().exec(), cell);
    }
    for (size_t s = 0; s < site.out_features.size(); ++s) {
      h.push_back(allocate_zeroed(kGpu, kTokens * kRank * sizeof(float)));
    }
  }
  [[nodiscard]] TensorView x_view() const { return x.view(kTokens, in); }
  [[nodiscard]] TensorView y_view() const { return y.view(kTokens, out); }
  [[nodiscard]] TensorView h_view(size_t slice) const {
    return {h[slice].get(), DType::kFloat32, kGpu, {kTokens, kRank}};
  }
  /// Columns of y.
  [[nodiscard]] std::vector<LoraSlice> slices() const {
    std::vector<LoraSlice> result;
    int64_t column = 0;
    for (const int64_t width : cell.site->out_features) {
      result.push_back({y.view(kTokens, width, column, out)});
      column += width;
    }
    return result;
  }
  void run_product(cudaStream_t stream, int layer) const {
    product(stream, y_view(), x_view(), base[size_t(layer)].view(out, in));
  }
  /// What the memory alone would take for the product.
  [[nodiscard]] double product_floor_us() const {
    return double(kElement * (out * in + kTokens * (in + out))) / kReadBytesPerUs;
  }

  Cell cell;
  int64_t in, out;
  RandomValues x, y;
  Product product;
  std::deque<RandomValues> base;     // of each layer
  std::deque<SiteWeights> adapters;  // of each layer
  std::deque<DeviceBytes> h;         // of each slice
};

/// Orders streams.
class Event {
 public:
  Event() { HEDDLE_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  /// What `later` is given from now on runs after what `earlier` has been given.
  void order(cudaStream_t earlier, cudaStream_t later) const {
    HEDDLE_CUDA_CHECK(cudaEventRecord(event_, earlier));
    HEDDLE_CUDA_CHECK(cudaStreamWaitEvent(later, event_, 0));
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class Step {
 public:
  explicit Step(Bench& bench)
      : bench_(bench),
        num_layers_(bench.is_quick() ? kQuickLayers : kLayers),
        batch_(bench.context().exec(), {&kQkv, kRank, kTokens, kAdapters}) {
    const auto workspace_of = [](const Site& site, int num_slices) {
      return lora_apply_workspace_bytes(kGpu, kTokens, site.in_features, num_slices, kRank);
    };
    for (const Site* site : kSites) {
      bench.context().reserve_workspace(workspace_of(*site, site->num_slices()));
      sites_.emplace_back(bench, cublas_, *site, num_layers_);
    }
    for (int s = 0; s < kMaxSlices; ++s) {
      side_contexts_.emplace_back(kGpu, side_streams_[s].get(), workspace_of(kDown, 1));
    }
  }

  /// Chooses the algorithms of the products, and says what they take.
  void choose_products() {
    for (StepSite& site : sites_) {
      const auto time = [&](testing::Replays replays) {
        return testing::time_in_graph(
            bench_.stream(), num_layers_,
            [&](int layer) { site.run_product(bench_.stream(), layer); }, replays);
      };
      site.product.choose([&] { return time({.warm_up = 1, .timed = 3}); });
      add(bench_, {.op = "product",
                   .site = site.cell.site->name,
                   .rank = 0,
                   .tokens = kTokens,
                   .adapters = 0,
                   .form = "cuBLASLt",
                   .num_calls = num_layers_,
                   .floor_us = site.product_floor_us(),
                   .samples = time({})});
    }
  }

  void time_forms() {
    std::deque<testing::RecordedGraph> graphs;
    for (const NamedForm& form : kForms) {
      graphs.emplace_back(bench_.stream(), [&] { record(form.form); });
    }
    std::vector<std::vector<double>> samples(graphs.size());
    testing::ReplayTimer replay_us;
    const testing::Replays replays;
    for (int i = 0; i < replays.warm_up + replays.timed; ++i) {
      for (size_t g = 0; g < graphs.size(); ++g) {
        const double us = replay_us(graphs[g], bench_.stream());
        if (i >= replays.warm_up) samples[g].push_back(us);
      }
    }
    const double base_us = median(samples[0]);
    for (size_t g = 0; g < graphs.size(); ++g) {
      const bool has_lora = kForms[g].form != Form::kNone;
      Record result{.op = "decode_step",
                    .site = "8B Llama",
                    .rank = has_lora ? kRank : 0,
                    .tokens = kTokens,
                    .adapters = has_lora ? kAdapters : 0,
                    .form = kForms[g].name,
                    .num_calls = 1,
                    .floor_us = step_floor_us(has_lora),
                    .samples = samples[g]};
      result.facts.emplace_back("layers", num_layers_);
      if (has_lora) {
        const double added = 100 * (median(samples[g]) / base_us - 1);
        result.facts.emplace_back("added_percent", added);
        std::printf("added %.1f %%:\n", added);
      }
      add(bench_, result);
    }
  }

 private:
  [[nodiscard]] double step_floor_us(bool has_lora) const {
    double us = 0;
    for (const StepSite& site : sites_) {
      us += num_layers_ * (site.product_floor_us() + (has_lora ? floor_us(site.cell) : 0));
    }
    return us;
  }

  void record(Form form) {
    if (form != Form::kNone) batch_.plan(bench_.context().exec());
    for (int layer = 0; layer < num_layers_; ++layer) {
      for (const StepSite& site : sites_) record_site(form, site, layer);
    }
  }

  void record_site(Form form, const StepSite& site, int layer) {
    const SiteWeights& weights = site.adapters[size_t(layer)];
    const bool is_single = site.cell.site->num_slices() == 1;
    switch (form) {
      case Form::kNone: return site.run_product(bench_.stream(), layer);
      case Form::kShrinkBeside: return record_halves(site, layer, 1);
      case Form::kShrinkBesideEach:
        return record_halves(site, layer, site.cell.site->out_features.size());
      case Form::kShrinkBesideOne:
        if (is_single) return record_halves(site, layer, 1);
        break;
      case Form::kFetchBeside: record_fetch(weights, fetch_kernel<false>); break;
      case Form::kFetchBesideKeep: record_fetch(weights, fetch_kernel<true>); break;
      case Form::kAfter: break;
    }
    site.run_product(bench_.stream(), layer);
    if (form == Form::kFetchBeside || form == Form::kFetchBesideKeep) {
      event_.order(side_streams_[0].get(), bench_.stream());
    }
    const std::vector<LoraSlice> slices = site.slices();
    lora_apply(bench_.context().exec(), slices, site.x_view(), weights.a(), weights.b(),
               batch_.planned());
  }

  /// On the first side stream, concurrently with what the main stream is given next.
  template <class Kernel>
  void record_fetch(const SiteWeights& weights, Kernel kernel) {
    const cudaStream_t side = side_streams_[0].get();
    event_.order(bench_.stream(), side);
    // 32 blocks: enough to read a site's weights in the time of its product, and a small part of
    // the chip.
    kernel<<<32, 512, 0, side>>>(reinterpret_cast<const uint4*>(weights.data()),
                                 weights.num_bytes() / int64_t{sizeof(uint4)});
    HEDDLE_CUDA_CHECK(cudaGetLastError());
  }

  /// The shrinks of all slices during the product, on one side stream or on one for each slice; the
  /// expands after it, in the order of the main stream or, but for the first, each on its slice's.
  void record_halves(const StepSite& site, int layer, size_t num_sides) {
    const SiteWeights& weights = site.adapters[size_t(layer)];
    const LoraBatch batch = batch_.planned();
    const size_t num_slices = site.cell.site->out_features.size();
    const cudaStream_t main = bench_.stream();
    const auto side = [&](size_t slice) { return num_sides == 1 ? 0 : slice; };
    for (size_t i = 0; i < num_sides; ++i) event_.order(main, side_streams_[i].get());
    for (size_t s = 0; s < num_slices; ++s) {
      // Without an exchange, since blocks should not wait for others while a product holds the
      // chip.
      ExecContext ctx = side_contexts_[side(s)].exec();
      ctx.exchange = {};
      lora_shrink(ctx, site.h_view(s), site.x_view(), weights.a(), static_cast<int>(s), batch);
    }
    site.run_product(main, layer);
    event_.order(side_streams_[0].get(), main);
    for (size_t i = 1; i < num_sides; ++i) event_.order(main, side_streams_[i].get());
    int64_t column = 0;
    for (size_t s = 0; s < num_slices; ++s) {
      const int64_t width = site.cell.site->out_features[s];
      const ExecContext& ctx =
          side(s) == 0 ? bench_.context().exec() : side_contexts_[side(s)].exec();
      lora_expand(ctx, site.y_view(), site.h_view(s), weights.b(), static_cast<int>(s), width,
                  batch, column);
      column += width;
    }
    for (size_t i = 1; i < num_sides; ++i) event_.order(side_streams_[i].get(), main);
  }

  Bench& bench_;
  int num_layers_;
  CublasLt cublas_;
  Batch batch_;
  testing::DeviceStream side_streams_[kMaxSlices];
  std::deque<CudaContext> side_contexts_;
  Event event_;
  std::deque<StepSite> sites_;
};

void run(Bench& bench) {
  Step step(bench);
  step.choose_products();
  step.time_forms();
}

}  // namespace
}  // namespace heddle::lora_bench

int main(int argc, char** argv) {
  return heddle::testing::run_bench(argc, argv, heddle::lora_bench::run);
}
