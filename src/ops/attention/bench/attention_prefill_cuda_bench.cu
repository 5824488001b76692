// Times batch_prefill on the first GPU.
//   bench_attention_prefill_cuda --json FILE [--quick]
// Pages of 16 in random order, head-major. A sample is one call's share of a replay of a graph of
// one call, or of several short ones that take other pages each, so that keys and values come from
// memory. TFLOP/s count the visible half of the scores: 2 * batch * length^2 * heads * head_dim;
// the floor is their time at the 790 TFLOP/s that cuBLASLt reaches with dense products of random
// bf16 values on an H200. The first five cases are those that other kernels were measured in.

#include <algorithm>
#include <vector>

#include "heddle/ops/attention.h"

#include "core/math.h"
#include "ops/attention/bench/codes_cuda.h"
#include "testing/bench_program_cuda.h"

namespace heddle {
namespace {

using testing::DeviceIndices;
using testing::kGpu;
using testing::RandomValues;

constexpr int64_t kPageSize = 16;
constexpr int64_t kColdBytes = int64_t{200} << 20;  // the L2 cache of an H200 has 60 MB
constexpr double kFlopsPerUs = 7.9e8;
constexpr double kScaleOfVarianceOne = 1.73;  // of values in [-scale, scale)

struct Case {
  int64_t batch, length;
  int64_t q_heads = 32, kv_heads = 8, head_dim = 128;
  DType dtype = DType::kBFloat16;
  bool rotates = false, has_codes = false;

  [[nodiscard]] int64_t num_tokens() const { return batch * length; }
  [[nodiscard]] int64_t pages_per_seq() const { return ceil_div(length, kPageSize); }
  [[nodiscard]] int64_t num_pages() const { return batch * pages_per_seq(); }
  /// Of pools in elements of 2 bytes.
  [[nodiscard]] int64_t pool_elements() const {
    return 2 * num_pages() * kv_heads * kPageSize * head_dim / (has_codes ? 2 : 1);
  }
  [[nodiscard]] double flops() const {
    return 2.0 * double(batch) * double(length) * double(length) * double(q_heads * head_dim);
  }
};

std::vector<Case> cases(bool is_quick) {
  std::vector<Case> all{{1, 1024}, {1, 4096}, {1, 16384}, {8, 1024}, {16, 512}};
  const Case base{4, 2048};
  Case rotates = base;
  rotates.rotates = true;
  all.push_back(rotates);
  for (Case c : {Case{1, 4096}, base, Case{1, 16384}}) {
    c.has_codes = true;
    all.push_back(c);
  }
  if (is_quick) return all;
  for (const int64_t dim : {64, 80, 96, 112, 128, 192, 256}) {
    Case c = base;
    c.head_dim = dim;
    all.push_back(c);
  }
  for (const int64_t kv_heads : {32, 4, 1}) {
    Case c = base;
    c.kv_heads = kv_heads;
    all.push_back(c);
  }
  Case half = base;
  half.dtype = DType::kFloat16;  // of the same bits: 1 to 2 and some smaller ones, of either sign
  all.push_back(half);
  return all;
}

/// Queries and tables of a case, and pools for calls that take turns.
class Prompts {
 public:
  Prompts(const Case& c, int num_pools)
      : c_(c),
        q_(c.num_tokens() * c.q_heads * c.head_dim, kScaleOfVarianceOne),
        o_(c.num_tokens() * c.q_heads * c.head_dim),
        q_indptr_(testing::even_starts(c.batch, c.length)),
        page_indptr_(testing::even_starts(c.batch, c.pages_per_seq())),
        pages_(testing::shuffled(c.num_pages())),
        last_page_len_(std::vector<int32_t>(
            size_t(c.batch),
            static_cast<int32_t>(c.length - (c.pages_per_seq() - 1) * kPageSize))) {
    for (int i = 0; i < num_pools; ++i) {
      pools_.emplace_back(c.pool_elements(), kScaleOfVarianceOne);
      if (c.has_codes) fill_codes(pools_.back().data(), 2 * c.pool_elements());
    }
  }

  void run(const ExecContext& ctx, int call) const {
    const TensorView all(pools_[size_t(call) % pools_.size()].data(),
                         c_.has_codes ? DType::kFloat8E4M3 : c_.dtype, kGpu,
                         {2 * c_.num_pages(), c_.kv_heads, kPageSize, c_.head_dim});
    const TensorView k = all.narrow(0, 0, c_.num_pages()),
                     v = all.narrow(0, c_.num_pages(), c_.num_pages());
    // One scale for all: reading more takes no time here.
    const PagedKv cache =
        c_.has_codes ? PagedKv::from_pool(k, v, 0.01f, 0.01f) : PagedKv::from_pool(k, v);
    const PageTable table{page_indptr_.view(), pages_.view(), last_page_len_.view()};
    AttentionOptions options;
    if (c_.rotates) options.rope = RopeParams{};
    batch_prefill(ctx, rows(o_), {}, rows(q_), q_indptr_.view(), cache, table, options);
  }

 private:
  [[nodiscard]] TensorView rows(const RandomValues& values) const {
    return {values.data(), c_.dtype, kGpu, {c_.num_tokens(), c_.q_heads, c_.head_dim}};
  }

  Case c_;
  RandomValues q_, o_;
  DeviceIndices q_indptr_, page_indptr_, pages_, last_page_len_;
  std::vector<RandomValues> pools_;
};

void time_case(testing::BenchProgram& program, const Case& c) {
  const auto pools =
      static_cast<int>(std::clamp<int64_t>(kColdBytes / (c.pool_elements() * 2), 1, 16));
  const int calls = std::max(pools, c.flops() < 1e11 ? 8 : 1);
  const Prompts prompts(c, pools);
  const std::vector<double> samples = testing::time_in_graph(
      program.stream(), calls, [&](int call) { prompts.run(program.context().exec(), call); },
      {3, program.is_quick() ? 5 : 15});
  program.add({{"op", c.rotates     ? "batch_prefill, RoPE inside"
                      : c.has_codes ? "batch_prefill, f8e4m3"
                                    : "batch_prefill"},
               {"batch", c.batch},
               {"q_len", c.length},
               {"q_heads", c.q_heads},
               {"kv_heads", c.kv_heads},
               {"head_dim", c.head_dim},
               {"page_size", kPageSize},
               {"dtype", c.dtype == DType::kFloat16 ? "f16" : "bf16"},
               {"calls_in_graph", calls},
               {"tflops", c.flops() / testing::median(samples) * 1e-6}},
              c.flops() / kFlopsPerUs, samples);
}

void run(testing::BenchProgram& program) {
  for (const Case& c : cases(program.is_quick())) time_case(program, c);
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) { return heddle::testing::run_bench(argc, argv, heddle::run); }
