// Times kv_append, kv_init, rope_kv_append, rope and merge_states on the first GPU.
//   bench_kv_append_cuda --json FILE [--quick]
// bf16, 32 query heads, 8 kv heads of 128, head-major pages of 16 in random order. A sample is one call's share of a replay of a graph of
// calls. Small batches stay in the L2 cache, as a decode step's do; large ones read and write more than it holds, and copies of the
// driver of the same bytes stand beside them.
//
// Floors are bytes at the 4.28 TB/s of a copy on an H200. Of a small batch what counts is a chain of latencies over an empty kernel:
// starts and length (one read), the page (one read), the write: 0.6 us. kv_init has one read more, to find the sequence.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cuda/check.h"

#include "heddle/core/cuda_context.h"
#include "heddle/ops/attention.h"
#include "heddle/ops/kv_cache.h"
#include "heddle/ops/rope.h"

#include "core/device_bytes.h"
#include "testing/graph_timing_cuda.h"

namespace heddle {
namespace {

constexpr Device kGpu{DeviceType::kCuda, 0};
constexpr int64_t kQHeads = 32, kKvHeads = 8, kDim = 128, kPageSize = 16, kElement = 2;
constexpr int64_t kKeyBytes = kKvHeads * kDim * kElement, kQueryBytes = kQHeads * kDim * kElement;
constexpr double kCopyBytesPerUs = 4.28e6;
constexpr int64_t kLargeBytes = int64_t{32} << 20;  // calls that move more are timed one by one

template <class T>
DeviceBytes upload(const std::vector<T>& values) {
  DeviceBytes memory = allocate_zeroed(kGpu, values.size() * sizeof(T));
  HEDDLE_CUDA_CHECK(
      cudaMemcpy(memory.get(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  HEDDLE_CUDA_CHECK(cudaDeviceSynchronize());  // the copy may come after the call's return
  return memory;
}

// Bits of a hash as values of [1, 2) or (-2, -1]: never zeros, which take less power.
__global__ void fill_kernel(uint16_t* values, size_t count) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const uint32_t hash = (static_cast<uint32_t>(i) * 2654435761u) >> 7;
    values[i] = static_cast<uint16_t>(0x3f80u | (hash & 0x807fu));
  }
}
DeviceBytes random_values(int64_t bytes) {
  DeviceBytes memory = allocate_zeroed(kGpu, size_t(bytes));
  fill_kernel<<<1024, 256>>>(reinterpret_cast<uint16_t*>(memory.get()), size_t(bytes) / 2);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
  HEDDLE_CUDA_CHECK(cudaDeviceSynchronize());
  return memory;
}

/// num_seqs sequences of `length` tokens, of which the last new_tokens are new.
struct Batch {
  int64_t num_seqs, new_tokens, num_tokens, num_pages;
  DeviceBytes pool, k, v, q, page_indptr, pages, last_page_len, seq_indptr, positions;

  Batch(int64_t num_seqs, int64_t length, int64_t new_tokens)
      : num_seqs(num_seqs), new_tokens(new_tokens), num_tokens(num_seqs * new_tokens) {
    const int64_t of_seq = (length + kPageSize - 1) / kPageSize;
    num_pages = num_seqs * of_seq;
    std::vector<int32_t> starts(static_cast<size_t>(num_seqs + 1)), rows(starts.size());
    std::vector<int32_t> ids(static_cast<size_t>(num_pages));
    for (size_t i = 0; i < starts.size(); ++i) {
      starts[i] = static_cast<int32_t>(int64_t(i) * of_seq);
      rows[i] = static_cast<int32_t>(int64_t(i) * new_tokens);
    }
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), std::mt19937(1));
    const auto last = static_cast<int32_t>(length - (of_seq - 1) * kPageSize);
    page_indptr = upload(starts);
    seq_indptr = upload(rows);
    pages = upload(ids);
    last_page_len = upload(std::vector<int32_t>(size_t(num_seqs), last));
    std::vector<int32_t> places(size_t(num_tokens), 0);
    for (size_t t = 0; t < places.size(); ++t) {
      places[t] = static_cast<int32_t>(length - new_tokens + int64_t(t) % new_tokens);
    }
    positions = upload(places);
    pool = random_values(2 * num_pages * kPageSize * kKeyBytes);
    k = random_values(num_tokens * kKeyBytes);
    v = random_values(num_tokens * kKeyBytes);
    q = random_values(num_tokens * kQueryBytes);
  }
  [[nodiscard]] PagedKv cache() const {
    const TensorView all(pool.get(), DType::kBFloat16, kGpu,
                         {2 * num_pages, kKvHeads, kPageSize, kDim});
    return PagedKv::from_pool(all.narrow(0, 0, num_pages), all.narrow(0, num_pages, num_pages));
  }
  [[nodiscard]] static TensorView ints(const DeviceBytes& memory, int64_t n) {
    return {memory.get(), DType::kInt32, kGpu, {n}};
  }
  [[nodiscard]] PageTable table() const {
    return {ints(page_indptr, num_seqs + 1), ints(pages, num_pages), ints(last_page_len, num_seqs)};
  }
  [[nodiscard]] TensorView rows(const DeviceBytes& memory, int64_t heads) const {
    return {memory.get(), DType::kBFloat16, kGpu, {num_tokens, heads, kDim}};
  }
};

struct EmptyParams {
  char bytes[256];
};
__global__ void empty_kernel(const __grid_constant__ EmptyParams) {}

class Bench {
 public:
  explicit Bench(bool is_quick) : is_quick_(is_quick) {
    HEDDLE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    context_.emplace(kGpu, stream_, 0);
  }
  ~Bench() { cudaStreamDestroy(stream_); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  [[nodiscard]] const ExecContext& ctx() const { return context_->exec(); }

  /// bytes: read and written.
  template <class Call>
  void time(const char* op, const std::string& batch, int64_t bytes, const Call& call) {
    const int calls = bytes > kLargeBytes ? 4 : is_quick_ ? 20 : 100;
    std::vector<double> samples =
        testing::time_in_graph(stream_, calls, [&](int) { call(); }, {3, is_quick_ ? 5 : 15});
    std::vector<double> sorted = samples;
    std::sort(sorted.begin(), sorted.end());
    const double us = sorted[sorted.size() / 2];
    std::printf("%-15s %-28s %10.2f us  floor %9.2f us  %6.3f TB/s\n", op, batch.c_str(), us,
                double(bytes) / kCopyBytesPerUs, double(bytes) / us * 1e-6);
    std::fflush(stdout);
    records_ += records_.empty() ? "[\n" : ",\n";
    records_ += R"({"op": ")" + std::string(op) + R"(", "batch": ")" + batch + R"(", "bytes": )" +
                std::to_string(bytes) + R"(, "calls_in_graph": )" + std::to_string(calls) +
                R"(, "us": )" + std::to_string(us) + R"(, "samples": [)";
    for (size_t i = 0; i < samples.size(); ++i) {
      records_ += (i == 0 ? "" : ", ") + std::to_string(samples[i]);
    }
    records_ += "]}";
  }

  /// All that is done with new tokens, at one size.
  void time_tokens(int64_t num_seqs, int64_t new_tokens, int64_t length) {
    const Batch b(num_seqs, length, new_tokens);
    const std::string name = std::to_string(num_seqs) + " x " + std::to_string(new_tokens);
    const int64_t kv_bytes = 4 * b.num_tokens * kKeyBytes;
    const ConstTensorView k = b.rows(b.k, kKvHeads), v = b.rows(b.v, kKvHeads);
    const ConstTensorView starts = Batch::ints(b.seq_indptr, b.num_seqs + 1);
    if (new_tokens == 1) {
      time("kv_append", name, kv_bytes, [&] { kv_append(ctx(), b.cache(), b.table(), k, v); });
    }
    time("kv_init", name, kv_bytes, [&] { kv_init(ctx(), b.cache(), b.table(), k, v, starts); });
    if (kv_bytes > kLargeBytes) {
      time("copy", name, kv_bytes, [&] {
        HEDDLE_CUDA_CHECK(cudaMemcpyAsync(b.pool.get(), b.k.get(), size_t(kv_bytes / 4),
                                          cudaMemcpyDeviceToDevice, ctx().stream));
        HEDDLE_CUDA_CHECK(cudaMemcpyAsync(b.pool.get() + kv_bytes / 4, b.v.get(),
                                          size_t(kv_bytes / 4), cudaMemcpyDeviceToDevice,
                                          ctx().stream));
      });
    }
    const TensorView q = b.rows(b.q, kQHeads);
    const int64_t q_bytes = 2 * b.num_tokens * kQueryBytes;
    time("rope_kv_append", name, kv_bytes + q_bytes,
         [&] { rope_kv_append(ctx(), q, b.cache(), b.table(), k, v, starts, {}, {.theta = 5e5}); });
    const ConstTensorView positions = Batch::ints(b.positions, b.num_tokens);
    time("rope", name, q_bytes, [&] { rope(ctx(), q, positions, {.theta = 5e5}); });
    time_merge(name, b);
  }

  void time_empty() {
    time("empty kernel", "", 0, [&] { empty_kernel<<<1, 32, 0, stream_>>>({}); });
  }

  void write_json(const std::string& path) const {
    std::ofstream file(path);
    file << records_ << "\n]\n";
    file.close();
    HEDDLE_CHECK(!file.fail(), "cannot write ", path);
  }

 private:
  void time_merge(const std::string& name, const Batch& b) {
    const DeviceBytes other = random_values(b.num_tokens * kQueryBytes);
    const DeviceBytes lse = allocate_zeroed(kGpu, size_t(b.num_tokens * kQHeads * 4));
    const TensorView q = b.rows(b.q, kQHeads);
    const TensorView sums(lse.get(), DType::kFloat32, kGpu, {b.num_tokens, kQHeads});
    time("merge_states", name, 3 * b.num_tokens * (kQueryBytes + kQHeads * 4),
         [&] { merge_states(ctx(), q, sums, q, sums, b.rows(other, kQHeads), sums); });
  }

  bool is_quick_;
  cudaStream_t stream_ = nullptr;
  std::optional<CudaContext> context_;
  std::string records_;
};

void run(int argc, char** argv) {
  std::string path;
  bool is_quick = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) is_quick = true;
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) path = argv[++i];
  }
  HEDDLE_CHECK(!path.empty(), "usage: ", argv[0], " --json FILE [--quick]");
  const ScopedDevice current(kGpu);
  Bench bench(is_quick);
  bench.time_empty();
  for (const int64_t num_seqs : {1, 32, 256}) bench.time_tokens(num_seqs, 1, 2048);
  bench.time_tokens(8, 512, 1024);    // 17 MB of keys and values
  bench.time_tokens(8, 2048, 2048);   // 67 MB
  bench.time_tokens(32, 2048, 2048);  // 268 MB
  if (!is_quick) bench.time_tokens(1, 100'000, 100'000);
  bench.write_json(path);
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  try {
    heddle::run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}
