// Times kv_append, kv_init, rope_kv_append, rope and merge_states on the first GPU.
//   bench_kv_append_cuda --json FILE [--quick]
// bf16, 32 query heads, 8 kv heads of 128, head-major pages of 16 in random order. A sample is one
// call's share of a replay of a graph of calls. Small batches stay in the L2 cache, as a decode
// step's do; large ones read and write more than it holds, and copies of the driver of the same
// bytes are printed next to them.
//
// Floors are bytes at the 4.28 TB/s of a copy on an H200. Of a small batch what counts is a chain
// of latencies over an empty kernel: starts and length (one read), the page (one read), the write:
// 0.6 us. kv_init has one read more, to find the sequence.

#include <algorithm>
#include <string>
#include <vector>

#include "heddle/ops/attention.h"
#include "heddle/ops/kv_cache.h"
#include "heddle/ops/rope.h"

#include "core/device_bytes.h"
#include "core/math.h"
#include "testing/bench_program_cuda.h"

namespace heddle {
namespace {

using testing::DeviceIndices;
using testing::kGpu;
using testing::RandomValues;

constexpr int64_t kQHeads = 32, kKvHeads = 8, kDim = 128, kPageSize = 16, kElement = 2;
constexpr int64_t kKeyBytes = kKvHeads * kDim * kElement, kQueryBytes = kQHeads * kDim * kElement;
constexpr int64_t kLargeBytes = int64_t{32} << 20;  // calls that move more are timed one by one

/// The positions of new tokens: the last ones of each sequence.
std::vector<int32_t> last_positions(int64_t num_seqs, int64_t length, int64_t new_tokens) {
  std::vector<int32_t> values(static_cast<size_t>(num_seqs * new_tokens));
  for (size_t t = 0; t < values.size(); ++t) {
    values[t] = static_cast<int32_t>(length - new_tokens + int64_t(t) % new_tokens);
  }
  return values;
}

/// num_seqs sequences of `length` tokens, of which the last new_tokens are new.
struct Batch {
  int64_t num_tokens, pages_of_seq, num_pages;
  DeviceIndices page_indptr, pages, last_page_len, seq_indptr, positions;
  RandomValues pool, k, v, q;

  Batch(int64_t num_seqs, int64_t length, int64_t new_tokens)
      : num_tokens(num_seqs * new_tokens),
        pages_of_seq(ceil_div(length, kPageSize)),
        num_pages(num_seqs * pages_of_seq),
        page_indptr(testing::even_starts(num_seqs, pages_of_seq)),
        pages(testing::shuffled(num_pages)),
        last_page_len(std::vector<int32_t>(
            size_t(num_seqs), static_cast<int32_t>(length - (pages_of_seq - 1) * kPageSize))),
        seq_indptr(testing::even_starts(num_seqs, new_tokens)),
        positions(last_positions(num_seqs, length, new_tokens)),
        pool(2 * num_pages * kPageSize * kKvHeads * kDim),
        k(num_tokens * kKvHeads * kDim),
        v(num_tokens * kKvHeads * kDim),
        q(num_tokens * kQHeads * kDim) {}
  [[nodiscard]] PagedKv cache() const {
    const TensorView all(pool.data(), DType::kBFloat16, kGpu,
                         {2 * num_pages, kKvHeads, kPageSize, kDim});
    return PagedKv::from_pool(all.narrow(0, 0, num_pages), all.narrow(0, num_pages, num_pages));
  }
  [[nodiscard]] PageTable table() const {
    return {page_indptr.view(), pages.view(), last_page_len.view()};
  }
  [[nodiscard]] TensorView rows(const RandomValues& values, int64_t heads) const {
    return {values.data(), DType::kBFloat16, kGpu, {num_tokens, heads, kDim}};
  }
};

struct EmptyParams {
  char bytes[256];
};
__global__ void empty_kernel(const __grid_constant__ EmptyParams) {}

class Bench {
 public:
  explicit Bench(testing::BenchProgram& program)
      : program_(program), ctx_(program.context().exec()) {}

  /// bytes: read and written.
  template <class Call>
  void time(const char* op, const std::string& batch, int64_t bytes, const Call& call) {
    const bool is_quick = program_.is_quick();
    const int calls = bytes > kLargeBytes ? 4 : is_quick ? 20 : 100;
    program_.add({{"op", op}, {"batch", batch}, {"bytes", bytes}, {"calls_in_graph", calls}},
                 double(bytes) / testing::kCopyBytesPerUs,
                 testing::time_in_graph(program_.stream(), calls, [&](int) { call(); },
                                        {3, is_quick ? 5 : 15}));
  }

  /// All that is done with new tokens, at one size.
  void time_tokens(int64_t num_seqs, int64_t new_tokens, int64_t length) {
    const Batch b(num_seqs, length, new_tokens);
    const std::string name = std::to_string(num_seqs) + " x " + std::to_string(new_tokens);
    const int64_t kv_bytes = 4 * b.num_tokens * kKeyBytes;
    const ConstTensorView k = b.rows(b.k, kKvHeads), v = b.rows(b.v, kKvHeads);
    const ConstTensorView starts = b.seq_indptr.view();
    if (new_tokens == 1) {
      time("kv_append", name, kv_bytes, [&] { kv_append(ctx_, b.cache(), b.table(), k, v); });
    }
    time("kv_init", name, kv_bytes, [&] { kv_init(ctx_, b.cache(), b.table(), k, v, starts); });
    if (kv_bytes > kLargeBytes) {
      time("copy", name, kv_bytes, [&] {
        HEDDLE_CUDA_CHECK(cudaMemcpyAsync(b.pool.data(), b.k.data(), size_t(kv_bytes / 4),
                                          cudaMemcpyDeviceToDevice, ctx_.stream));
        HEDDLE_CUDA_CHECK(cudaMemcpyAsync(b.pool.data() + kv_bytes / 4, b.v.data(),
                                          size_t(kv_bytes / 4), cudaMemcpyDeviceToDevice,
                                          ctx_.stream));
      });
    }
    const TensorView q = b.rows(b.q, kQHeads);
    const int64_t q_bytes = 2 * b.num_tokens * kQueryBytes;
    time("rope_kv_append", name, kv_bytes + q_bytes,
         [&] { rope_kv_append(ctx_, q, b.cache(), b.table(), k, v, starts, {}, {.theta = 5e5}); });
    const ConstTensorView positions = b.positions.view();
    // As a decoder calls it, which has the positions.
    time("rope_kv_append, positions", name, kv_bytes + q_bytes, [&] {
      rope_kv_append(ctx_, q, b.cache(), b.table(), k, v, starts, positions, {.theta = 5e5});
    });
    time("rope", name, q_bytes, [&] { rope(ctx_, q, positions, {.theta = 5e5}); });
    time_merge(name, b);
  }

  void time_empty() {
    time("empty kernel", "", 0, [&] { empty_kernel<<<1, 32, 0, ctx_.stream>>>({}); });
  }

 private:
  void time_merge(const std::string& name, const Batch& b) {
    const RandomValues other(b.num_tokens * kQHeads * kDim);
    const DeviceBytes lse = allocate_zeroed(kGpu, size_t(b.num_tokens * kQHeads * 4));
    const TensorView q = b.rows(b.q, kQHeads);
    const TensorView sums(lse.get(), DType::kFloat32, kGpu, {b.num_tokens, kQHeads});
    time("merge_states", name, 3 * b.num_tokens * (kQueryBytes + kQHeads * 4),
         [&] { merge_states(ctx_, q, sums, q, sums, b.rows(other, kQHeads), sums); });
  }

  testing::BenchProgram& program_;
  const ExecContext& ctx_;
};

void run(testing::BenchProgram& program) {
  Bench bench(program);
  bench.time_empty();
  for (const int64_t num_seqs : {1, 32, 256}) bench.time_tokens(num_seqs, 1, 2048);
  bench.time_tokens(1, 8192, 8192);
  bench.time_tokens(8, 512, 1024);    // 17 MB of keys and values
  bench.time_tokens(8, 2048, 2048);   // 67 MB
  bench.time_tokens(32, 2048, 2048);  // 268 MB
  if (!program.is_quick()) bench.time_tokens(1, 100'000, 100'000);
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) { return heddle::testing::run_bench(argc, argv, heddle::run); }
