// Times a modelled decode step of an 8B Llama with packed weights: the products of its 128 linear
// sites, for each format, and plain reads of as many bytes.
//   bench_packed_step_cuda --json FILE [--quick]
// 32 layers of qkv, o, gate_up and down with weights of their own, in one graph. Each launch waits
// for the previous one, as in a model. Norms, attention and activations are left out, and x of a
// site is always the same. Fractions are of the rate of the reads, measured in the same run.

#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>
#include <vector>

#include "heddle/ops/linear_site.h"

#include "ops/lora/bench/lora_sites_bench_cuda.h"
#include "testing/bench/plain_reads_cuda.h"

namespace heddle::lora_bench {
namespace {

constexpr int kLayers = 32, kQuickLayers = 8, kMaxRows = 128;
constexpr const Site* kSites[] = {&kQkv, &kO, &kGateUp, &kDown};  // of a layer, in order
constexpr WeightType kTypes[] = {WeightType::kQ4_0, WeightType::kQ4K,  WeightType::kQ4_1,
                                 WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ5K,
                                 WeightType::kQ6K,  WeightType::kQ8_0};

/// Random bits, but no scale is above 2 or no number.
__global__ void fill_kernel(uint32_t* words, size_t count) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    uint32_t v = static_cast<uint32_t>(i) * 0x9e3779b9u;
    v = (v ^ v >> 16) * 0x85ebca6bu;
    v = (v ^ v >> 13) * 0xc2b2ae35u;
    words[i] = (v ^ v >> 16) & 0x3fff3fffu;
  }
}

class Step {
 public:
  Step(Bench& bench, WeightType type)
      : bench_(bench), type_(type), num_layers_(bench.is_quick() ? kQuickLayers : kLayers) {
    for (const Site* site : kSites) {
      for (const int64_t out : site->out_features) {
        layer_bytes_ += int64_t(packed_bytes(type, out, site->in_features));
      }
      x_.emplace_back(int64_t{kMaxRows} * site->in_features, 1);
      y_.emplace_back(int64_t{kMaxRows} * site->sum_out_features(), 1);
      bench.context().reserve_workspace(linear_site_workspace_bytes(
          kGpu, kMaxRows, site->in_features, site->sum_out_features(), site->num_slices(), 0));
    }
    weights_.emplace(num_bytes());
    fill_kernel<<<4096, 256, 0, bench.stream()>>>(reinterpret_cast<uint32_t*>(weights_->data()),
                                                  num_bytes() / 4);
  }

  void time_reads() {
    const auto samples = testing::time_in_graph(bench_.stream(), 1, [&](int) {
      testing::launch_plain_reads(weights_->data(), num_bytes(), bench_.stream());
    });
    read_rate_ = double(num_bytes()) / median(samples);
    add_record("reads", 0, samples);
  }
  void time_rows(int64_t rows) {
    const auto samples = testing::time_in_graph(bench_.stream(), 1,
                                                [&](int) {
                                                  for (int layer = 0; layer < num_layers_; ++layer)
                                                    run_layer(layer, rows);
                                                },
                                                {.warm_up = 3, .timed = 15});
    add_record("linear_site", rows, samples);
  }

 private:
  [[nodiscard]] size_t num_bytes() const { return size_t(layer_bytes_ * num_layers_); }

  void run_layer(int layer, int64_t rows) {
    const std::byte* weight = weights_->data() + layer * layer_bytes_;
    for (size_t s = 0; s < std::size(kSites); ++s) {
      const Site& site = *kSites[s];
      std::vector<LinearSlice> slices;
      int64_t column = 0;
      const TensorView y = y_[s].view(rows, site.sum_out_features());
      for (const int64_t out : site.out_features) {
        slices.push_back(
            {.y = y.narrow(1, column, out), .packed = {type_, out, site.in_features, weight}});
        weight += packed_bytes(type_, out, site.in_features);
        column += out;
      }
      linear_site(bench_.context().exec(), slices, x_[s].view(rows, site.in_features),
                  LinearPath::kDecode);
    }
  }

  void add_record(const char* op, int64_t rows, const std::vector<double>& samples) {
    const double rate = double(num_bytes()) / median(samples);  // bytes a microsecond
    bench_.add({{"op", op},
                {"site", "8B Llama"},
                {"format", name(type_)},
                {"tokens", rows},
                {"layers", num_layers_},
                {"gb_per_s", rate / 1e3},
                {"to_reads", rate / read_rate_}},
               double(num_bytes()) / kReadBytesPerUs, samples);
  }

  Bench& bench_;
  WeightType type_;
  int num_layers_;
  int64_t layer_bytes_ = 0;
  double read_rate_ = 0;
  std::deque<RandomValues> x_, y_;
  std::optional<testing::DeviceMemory> weights_;
};

void run(Bench& bench) {
  for (const WeightType type : kTypes) {
    Step step(bench, type);
    step.time_reads();
    for (const int64_t rows : {1, 8, 16, 32, 64, 128}) step.time_rows(rows);
  }
}

}  // namespace
}  // namespace heddle::lora_bench

int main(int argc, char** argv) {
  return heddle::testing::run_bench(argc, argv, heddle::lora_bench::run);
}
