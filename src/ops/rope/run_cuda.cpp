#include "ops/rope/run_cuda.h"

#include <algorithm>

#include "core/kernel_log.h"
#include "ops/rope/rope_cuda_params.h"

namespace heddle {
namespace {

constexpr int64_t kVectorBytes = 16;
constexpr int kPairsAtOnce = cuda::RotaryFrequencies::kMaxPairs;  // of a launch

cuda::rope::RopeKernel pack(const TensorView& x, int num_pairs) {
  const auto element = static_cast<int64_t>(size_of(x.dtype()));
  return {.x = x.raw(),
          .token_step = x.stride(0) * element,
          .head_step = x.stride(1) * element,
          .num_tokens = x.size(0),
          .num_heads = static_cast<int32_t>(x.size(1)),
          .first_pair = 0,
          .num_pairs = num_pairs,
          .pair_distance = num_pairs,
          .dtype = x.dtype(),
          .positions = {}};
}

/// Whether rows and pairs are multiples of 16 bytes.
bool is_vector(const cuda::rope::RopeKernel& p) {
  const int64_t pairs = p.num_pairs * static_cast<int64_t>(size_of(p.dtype));
  return (reinterpret_cast<intptr_t>(p.x) | p.token_step | p.head_step | pairs) % kVectorBytes == 0;
}

bool is_empty(const cuda::rope::RopeKernel& p) {
  return p.num_tokens == 0 || p.num_heads == 0 || p.num_pairs == 0;
}

}  // namespace

void run_rope_table_cuda(const ExecContext& ctx, const TensorView& cos, const TensorView& sin,
                         const ConstTensorView& positions, const RopeParams& params,
                         const float* factors) {
  const auto num_pairs = static_cast<int>(cos.size(1));
  if (cos.size(0) == 0) return;
  const cuda::rope::RopeTable table{cos.data<float>(), sin.data<float>(), cos.stride(0),
                                    sin.stride(0)};
  for (int first = 0; first < num_pairs; first += kPairsAtOnce) {
    cuda::rope::RopeTurns turns;
    turns.num_pairs = std::min(kPairsAtOnce, num_pairs - first);
    for (int d = 0; d < turns.num_pairs; ++d) {
      turns.turns[d] = rope_frequency(params, 2 * num_pairs, first + d) * cuda::kTurnsPerRadian;
    }
    cuda::rope::launch_rope_table(table, cuda::ConstIndexVector(positions), cos.size(0), first,
                                  turns, factors == nullptr ? nullptr : factors + first,
                                  static_cast<float>(params.attention_factor), ctx.stream);
  }
}

void run_rope_cuda(const ExecContext& ctx, const TensorView& x, const ConstTensorView& cos,
                   const ConstTensorView& sin) {
  const cuda::rope::RopeKernel p = pack(x, static_cast<int>(cos.size(1)));
  if (is_empty(p)) return;
  const bool is_in_vectors = is_vector(p);
  log_choice("rope", is_in_vectors ? "table vectors" : "table elements");
  // The kernel reads the table only.
  const cuda::rope::RopeTable table{const_cast<float*>(cos.data<float>()),
                                    const_cast<float*>(sin.data<float>()), cos.stride(0),
                                    sin.stride(0)};
  cuda::rope::launch_rope(p, table, nullptr, is_in_vectors, ctx.stream);
}

void run_rope_cuda(const ExecContext& ctx, const TensorView& x, const ConstTensorView& positions,
                   const RopeParams& params, int num_pairs) {
  cuda::rope::RopeKernel p = pack(x, num_pairs);
  if (is_empty(p)) return;
  p.positions = cuda::ConstIndexVector(positions);
  const bool is_in_vectors = is_vector(p);
  log_choice("rope", is_in_vectors ? "positions vectors" : "positions elements");
  for (int first = 0; first < num_pairs; first += kPairsAtOnce) {
    cuda::RotaryFrequencies frequencies;
    p.first_pair = first;
    p.num_pairs = frequencies.num_pairs = std::min(kPairsAtOnce, num_pairs - first);
    for (int d = 0; d < p.num_pairs; ++d) {
      frequencies.frequency[d] = cuda::wrap_turns(rope_frequency(params, 2 * num_pairs, first + d) *
                                                  cuda::kTurnsPerRadian);
    }
    cuda::rope::launch_rope(p, {}, &frequencies, is_in_vectors, ctx.stream);
  }
}

}  // namespace heddle
