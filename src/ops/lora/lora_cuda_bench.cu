// Times lora_apply on the first GPU: decode and prefill at three linear sites of an 8B Llama, and lora_plan alone.
//   bench_lora_cuda --json FILE [--quick]
// A sample is one replay of a CUDA graph of many sites, shared out over them. Their weights differ and come from memory, not from
// the L2 cache; x and y are the same for all. A plan is made once before, as a step of a model makes it once for all its sites.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "cuda/check.h"

#include "heddle/core/cuda_context.h"
#include "heddle/ops/lora.h"

#include "core/device_bytes.h"
#include "testing/graph_timing_cuda.h"

namespace heddle {
namespace {

constexpr Device kGpu{DeviceType::kCuda, 0};
constexpr DType kDtype = DType::kBFloat16;
constexpr int64_t kElement = 2;            // bytes of a weight, and of x and y
constexpr double kReadBytesPerUs = 4.6e6;  // what plain reads reach on an H200
constexpr int64_t kColdBytes =
    int64_t{400} << 20;  // of different weights in a graph; the L2 cache of an H200 has 60 MB
constexpr int kMostSites = 256, kFewestSites = 24, kQuickSites = 32;
constexpr int kPlans = 64;  // calls of lora_plan in a graph

struct Site {
  const char* name;
  int64_t in_features;
  std::vector<int64_t> out_features;  // of each slice
};

const Site kQkv{"qkv", 4096, {4096, 1024, 1024}};
const Site kGateUp{"gate_up", 4096, {14336, 14336}};
const Site kDown{"down", 14336, {4096}};

/// One row of the table: `adapters` adapters of one rank, all of them in use; 0: loaded, but no row has one.
struct Cell {
  const Site* site;
  int rank;
  int64_t tokens;
  int adapters;
  bool is_prefill = false;  // equal segments of rows with one adapter, not an id for each row

  [[nodiscard]] int num_slots() const { return adapters > 0 ? adapters : 8; }
  [[nodiscard]] int num_slices() const { return static_cast<int>(site->out_features.size()); }
  [[nodiscard]] int64_t sum_out_features() const {
    return std::accumulate(site->out_features.begin(), site->out_features.end(), int64_t{0});
  }
  /// Of one slot: A and B of every slice.
  [[nodiscard]] int64_t adapter_bytes() const {
    return kElement * rank * (num_slices() * site->in_features + sum_out_features());
  }
};

std::vector<Cell> decode_cells() {
  struct Batch {
    int64_t tokens;
    int adapters;
  };
  const std::vector<Batch> of_qkv{{1, 1}, {8, 8}, {32, 8}, {32, 32}, {128, 128}};
  const std::vector<Batch> of_others{{1, 1}, {32, 8}, {32, 32}};
  std::vector<Cell> cells;
  for (const Site* site : {&kQkv, &kDown, &kGateUp}) {
    for (const int rank : {16, 64}) {
      for (const Batch& batch : site == &kQkv ? of_qkv : of_others) {
        cells.push_back({site, rank, batch.tokens, batch.adapters});
      }
    }
  }
  return cells;
}

std::vector<Cell> prefill_cells() {
  std::vector<Cell> cells;
  for (const Site* site : {&kQkv, &kGateUp}) {
    for (const int rank : {16, 64}) {
      for (const int64_t tokens : {512, 2048, 8192}) cells.push_back({site, rank, tokens, 8, true});
    }
  }
  return cells;
}

/// What the memory alone would take: all weights in use and x read, y read and written, each once.
double floor_us(const Cell& cell) {
  if (cell.adapters == 0) return 0;
  const int64_t of_row = kElement * (cell.site->in_features + 2 * cell.sum_out_features());
  return double(cell.adapters * cell.adapter_bytes() + cell.tokens * of_row) / kReadBytesPerUs;
}

// values[i] = a hash of its address in [-scale, scale), in bf16 bits (cut off, not rounded). Any grid and block.
__global__ void fill_kernel(uint16_t* values, size_t count, float scale) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    auto bits = reinterpret_cast<uint64_t>(values + i);  // splitmix64
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
    const auto random = static_cast<int32_t>((bits ^ (bits >> 31)) >> 32);
    const float value = static_cast<float>(random) * 0x1p-31f * scale;
    values[i] = static_cast<uint16_t>(__float_as_uint(value) >> 16);
  }
}

/// Memory with random values in [-scale, scale).
class RandomValues {
 public:
  RandomValues(int64_t count, double scale)
      : memory_(allocate_zeroed(kGpu, size_t(count * kElement))) {
    fill_kernel<<<1024, 256>>>(reinterpret_cast<uint16_t*>(memory_.get()), size_t(count),
                               static_cast<float>(scale));
    HEDDLE_CUDA_CHECK(cudaGetLastError());
    HEDDLE_CUDA_CHECK(cudaDeviceSynchronize());
  }
  [[nodiscard]] TensorView view(int64_t rows, int64_t columns, int64_t first_row = 0) const {
    return {memory_.get() + first_row * columns * kElement, kDtype, kGpu, {rows, columns}};
  }

 private:
  DeviceBytes memory_;
};

/// An i32 array on the device.
class Indices {
 public:
  explicit Indices(const std::vector<int32_t>& values)
      : size_(std::ssize(values)), memory_(allocate_zeroed(kGpu, values.size() * sizeof(int32_t))) {
    HEDDLE_CUDA_CHECK(cudaMemcpy(memory_.get(), values.data(), values.size() * sizeof(int32_t),
                                 cudaMemcpyHostToDevice));
    HEDDLE_CUDA_CHECK(cudaDeviceSynchronize());  // the copy may come after the call's return
  }
  [[nodiscard]] ConstTensorView view() const {
    return TensorView(memory_.get(), DType::kInt32, kGpu, {size_});
  }

 private:
  int64_t size_;
  DeviceBytes memory_;
};

/// One half of all adapters of a site: A [rank, in_features] or B [out_features, rank] of each slice.
class Weights {
 public:
  Weights(const ExecContext& ctx, const Cell& cell, const std::vector<int64_t>& features,
          LoraLayout layout)
      : table_(ctx, cell.num_slots(), features, cell.rank, kDtype, layout, LoraFit::kVectors) {
    const bool is_a = layout == LoraLayout::kRankMajor;
    for (size_t slice = 0; slice < features.size(); ++slice) {
      const int64_t rows = is_a ? cell.rank : features[slice];
      const int64_t columns = is_a ? features[slice] : cell.rank;
      values_.emplace_back(cell.num_slots() * rows * columns, 1 / std::sqrt(double(columns)));
      for (int slot = 0; slot < cell.num_slots(); ++slot) {
        table_.set(ctx, slot, static_cast<int>(slice),
                   values_.back().view(rows, columns, slot * rows));
      }
    }
  }
  [[nodiscard]] LoraTable view() const { return table_.view(); }

 private:
  std::deque<RandomValues> values_;  // of each slice
  AdapterTable table_;
};

struct SiteWeights {
  SiteWeights(const ExecContext& ctx, const Cell& cell)
      : a(ctx, cell, std::vector<int64_t>(cell.site->out_features.size(), cell.site->in_features),
          LoraLayout::kRankMajor),
        b(ctx, cell, cell.site->out_features, LoraLayout::kRankMinor) {}
  Weights a, b;
};

/// Which adapter each row has, and the plan of it.
class Batch {
 public:
  Batch(const ExecContext& ctx, const Cell& cell)
      : cell_(cell), plan_(allocate_zeroed(kGpu, lora_plan_bytes(cell.tokens, cell.rank))) {
    if (cell.is_prefill) {
      std::vector<int32_t> starts, ends;
      for (int64_t s = 0; s < cell.adapters; ++s) {
        starts.push_back(static_cast<int32_t>(cell.tokens * s / cell.adapters));
        ends.push_back(static_cast<int32_t>(cell.tokens * (s + 1) / cell.adapters));
      }
      batch_ = LoraBatch::from_segments(arrays_.emplace_back(starts).view(),
                                        arrays_.emplace_back(ends).view());
    } else {
      std::vector<int32_t> ids(size_t(cell.tokens), kNoAdapter);
      for (size_t t = 0; t < ids.size() && cell.adapters > 0; ++t) {
        ids[t] = static_cast<int32_t>(t) % cell.adapters;
      }
      batch_ = LoraBatch::from_ids(arrays_.emplace_back(ids).view());
    }
    plan(ctx);
    batch_.plan = plan_view();
  }
  void plan(const ExecContext& ctx) const {
    LoraBatch batch = batch_;
    batch.plan = {};
    lora_plan(ctx, plan_view(), batch, cell_.tokens, cell_.num_slots(), cell_.rank);
  }
  [[nodiscard]] const LoraBatch& planned() const { return batch_; }

 private:
  [[nodiscard]] TensorView plan_view() const {
    return {plan_.get(),
            DType::kUInt8,
            kGpu,
            {static_cast<int64_t>(lora_plan_bytes(cell_.tokens, cell_.rank))}};
  }
  Cell cell_;
  DeviceBytes plan_;
  std::deque<Indices> arrays_;
  LoraBatch batch_;
};

struct Record {
  const char* op;
  Cell cell;
  const char* form;
  int num_calls;
  double floor_us;
  std::vector<double> samples;  // us
};

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

class Bench {
 public:
  explicit Bench(bool is_quick) : is_quick_(is_quick), context_(kGpu, stream_.get(), 0) {}

  /// A whole site: the way that the library takes with an exchange, and the one without.
  void time_apply(const Cell& cell) {
    context_.reserve_workspace(lora_apply_workspace_bytes(kGpu, cell.tokens, cell.site->in_features,
                                                          cell.num_slices(), cell.rank));
    const ExecContext with_exchange = context_.exec();
    ExecContext without_exchange = with_exchange;
    without_exchange.exchange = {};

    const int64_t cold = (kColdBytes - 1) / (cell.num_slots() * cell.adapter_bytes()) + 1;
    const auto num_weights = std::clamp<int64_t>(cold, 2, is_quick_ ? kQuickSites : kMostSites);
    const int num_sites = static_cast<int>(std::max<int64_t>(num_weights, kFewestSites));
    std::deque<SiteWeights> weights;
    for (int64_t i = 0; i < num_weights; ++i) weights.emplace_back(with_exchange, cell);
    const RandomValues x(cell.tokens * cell.site->in_features, 1);
    std::deque<RandomValues> y;
    std::vector<LoraSlice> slices;
    for (const int64_t out : cell.site->out_features) {
      slices.push_back({y.emplace_back(cell.tokens * out, 1).view(cell.tokens, out)});
    }
    const Batch batch(with_exchange, cell);
    const auto samples = [&](const ExecContext& ctx) {
      return testing::time_in_graph(stream_.get(), num_sites, [&](int i) {
        const SiteWeights& site = weights[size_t(i) % weights.size()];
        lora_apply(ctx, slices, x.view(cell.tokens, cell.site->in_features), site.a.view(),
                   site.b.view(), batch.planned());
      });
    };
    add({"lora_apply", cell, "default", num_sites, floor_us(cell), samples(with_exchange)});
    add({"lora_apply", cell, "two launches", num_sites, floor_us(cell), samples(without_exchange)});
  }

  /// The plan alone; `cell` names the site of which the plan is one, but all sites of the rank have the same.
  void time_plan(const Cell& cell) {
    const Batch batch(context_.exec(), cell);
    const double floor = double(cell.tokens) * sizeof(int32_t) / kReadBytesPerUs;
    add({"lora_plan", cell, "default", kPlans, floor,
         testing::time_in_graph(stream_.get(), kPlans, [&](int) { batch.plan(context_.exec()); })});
  }

  [[nodiscard]] const std::vector<Record>& records() const { return records_; }

 private:
  class Stream {
   public:
    Stream() { HEDDLE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
    ~Stream() { cudaStreamDestroy(stream_); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    [[nodiscard]] cudaStream_t get() const { return stream_; }

   private:
    cudaStream_t stream_ = nullptr;
  };

  void add(Record record) {
    const Cell& cell = record.cell;
    std::printf("%-10s %-8s rank %-3d %5lld tokens %3d adapters  %-12s %9.2f us  floor %7.2f\n",
                record.op, cell.site->name, cell.rank, static_cast<long long>(cell.tokens),
                cell.adapters, record.form, median(record.samples), record.floor_us);
    std::fflush(stdout);
    records_.push_back(std::move(record));
  }

  bool is_quick_;
  Stream stream_;
  CudaContext context_;
  std::vector<Record> records_;
};

void write_json(const std::vector<Record>& records, const std::string& path) {
  std::ofstream file(path);
  const char* separator = "[\n";
  for (const Record& r : records) {
    file << separator << R"({"op": ")" << r.op << R"(", "site": ")" << r.cell.site->name
         << R"(", "rank": )" << r.cell.rank << R"(, "tokens": )" << r.cell.tokens
         << R"(, "adapters": )" << r.cell.adapters << R"(, "form": ")" << r.form
         << R"(", "calls_in_graph": )" << r.num_calls << R"(, "floor_us": )" << r.floor_us
         << R"(, "us": )" << median(r.samples) << R"(, "samples": )";
    for (size_t i = 0; i < r.samples.size(); ++i) file << (i == 0 ? "[" : ", ") << r.samples[i];
    file << "]}";
    separator = ",\n";
  }
  file << "\n]\n";
  file.close();
  HEDDLE_CHECK(!file.fail(), "cannot write ", path);
}

void run(const std::string& path, bool is_quick) {
  const ScopedDevice current(kGpu);
  Bench bench(is_quick);
  for (const Cell& cell : decode_cells()) {
    bench.time_apply(cell);
    if (cell.site == &kQkv) bench.time_plan(cell);
  }
  bench.time_apply({&kQkv, 16, 32, 0});
  for (const Cell& cell : prefill_cells()) {
    bench.time_apply(cell);
    if (cell.site == &kQkv) bench.time_plan(cell);
  }
  write_json(bench.records(), path);
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  std::string path;
  bool is_quick = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      is_quick = true;
    } else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      path = argv[++i];
    }
  }
  if (path.empty()) {
    std::fprintf(stderr, "bench_lora_cuda --json FILE [--quick]\n");
    return 2;
  }
  try {
    heddle::run(path, is_quick);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_lora_cuda: %s\n", error.what());
    return 1;
  }
}
