#include <algorithm>

#include "cuda/check.h"
#include "cuda/rotate_vectors_cuda.h"

#include "ops/rope/rope_cuda_params.h"

namespace heddle::cuda::rope {
namespace {

constexpr int kMaxThreads = 256;

// x[t][h] turned in place. One block a token (grid.x); thread (i, head) turns the pairs [i kVec, (i
// + 1) kVec) of heads `head`, head + heads_at_once, ... It asks for the first of them before it
// needs their angles, which the block computes once for all heads, or reads from the table.
template <class T, int kVec, bool kFromTable>
__global__ void __launch_bounds__(kMaxThreads)
    rope_kernel(const __grid_constant__ RopeKernel p, const __grid_constant__ RopeTable table,
                const __grid_constant__ RotaryFrequencies f, int heads_at_once) {
  const int64_t t = blockIdx.x;
  const int vectors = p.num_pairs / kVec, of_head = min(vectors, kMaxThreads);
  const int first_head = static_cast<int>(threadIdx.x) / of_head;
  // One pass, but for tables of very large heads.
  for (int i = static_cast<int>(threadIdx.x) % of_head; i < vectors; i += kMaxThreads) {
    const int pair = i * kVec;
    std::byte* row = p.x + t * p.token_step + first_head * p.head_step;
    ElementPairs<T, kVec> pairs(row, p.first_pair + pair, p.pair_distance);
    CosSin turns[kVec];
    if constexpr (kFromTable) {
#pragma unroll
      for (int j = 0; j < kVec; ++j) {
        turns[j] = {table.cos[t * table.cos_stride + pair + j],
                    table.sin[t * table.sin_stride + pair + j]};
      }
    } else {
      __shared__ SharedTurns shared;
      shared.fill(p.positions.at(t), f);
      shared.read(pair, turns);
    }
    for (int head = first_head; true;) {
      pairs.turn(turns);
      pairs.store(row, p.first_pair + pair, p.pair_distance);
      head += heads_at_once;
      if (head >= p.num_heads) break;
      row += heads_at_once * p.head_step;
      pairs = ElementPairs<T, kVec>(row, p.first_pair + pair, p.pair_distance);
    }
  }
}

// cos[t][d], sin[t][d] for the columns of the frequencies, a thread each; rows in grid.x.
__global__ void __launch_bounds__(RotaryFrequencies::kMaxPairs)
    rope_table_kernel(const __grid_constant__ RopeTable table,
                      const __grid_constant__ ConstIndexVector positions, int first_pair,
                      const __grid_constant__ RopeTurns f, const float* factors,
                      float attention_factor) {
  const int64_t t = blockIdx.x;
  const int d = static_cast<int>(threadIdx.x);
  double turns = f.turns[d];
  if (factors != nullptr) turns /= static_cast<double>(factors[d]);
  turns -= floor(turns);
  const CosSin turn = cos_sin_at(positions.at(t), static_cast<Turns>(turns * 0x1p64));
  table.cos[t * table.cos_stride + first_pair + d] = attention_factor * turn.cos;
  table.sin[t * table.sin_stride + first_pair + d] = attention_factor * turn.sin;
}

template <class T, int kVec>
void launch(const RopeKernel& p, const RopeTable& table, const RotaryFrequencies* frequencies,
            cudaStream_t stream) {
  const int vectors = p.num_pairs / kVec, of_head = std::min(vectors, kMaxThreads);
  const int heads_at_once = std::clamp(kMaxThreads / of_head, 1, p.num_heads);
  const int threads = of_head * heads_at_once;
  const auto blocks = static_cast<unsigned>(p.num_tokens);
  if (frequencies == nullptr) {
    rope_kernel<T, kVec, true><<<blocks, threads, 0, stream>>>(p, table, {}, heads_at_once);
  } else {
    rope_kernel<T, kVec, false>
        <<<blocks, threads, 0, stream>>>(p, table, *frequencies, heads_at_once);
  }
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void launch_rope(const RopeKernel& p, const RopeTable& table, const RotaryFrequencies* frequencies,
                 bool is_vector, cudaStream_t stream) {
  const auto of_type = [&]<class T>(T) {
    if (is_vector) {
      launch<T, 16 / sizeof(T)>(p, table, frequencies, stream);
    } else {
      launch<T, 1>(p, table, frequencies, stream);
    }
  };
  switch (p.dtype) {
    case DType::kFloat16: return of_type(__half{});
    case DType::kBFloat16: return of_type(__nv_bfloat16{});
    default: return of_type(float{});
  }
}

void launch_rope_table(const RopeTable& table, const ConstIndexVector& positions,
                       int64_t num_tokens, int first_pair, const RopeTurns& turns,
                       const float* factors, float attention_factor, cudaStream_t stream) {
  rope_table_kernel<<<static_cast<unsigned>(num_tokens), turns.num_pairs, 0, stream>>>(
      table, positions, first_pair, turns, factors, attention_factor);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda::rope
