#pragma once

// The portable kernel of batch_prefill, in the manner of FlashAttention-2 (Dao 2023, arXiv
// 2307.08691), and its launch. The files of instances/ have the instances.
//
//   item    up to kRows rows of q of one sequence and kv head; a row is (token, head of the group)
//     tile    64 keys, from a multiple of 64 on, in ascending order
//       warp    16 or 32 rows of the item, all keys of the tile
//
//                  64 keys of the tile                       head elements
//                +-----+-----+-- ... --+                +-----+-----+-- ... --+
//        16 rows |8 keys     |         |       16 rows  |8 el.|     |         |
//                +-----+-----+-- ... --+                +-----+-----+-- ... --+
//                 S = Q K^T, then weights                O += P V
//
//         lane    (g, q) = (lane / 4, lane % 4) has rows g, g + 8 and columns 2q, 2q + 1 of each 8
//
// So weights lie where the second product takes its rows: they never leave the registers.
//
// Keys and values of f8e4m3 become T on their way to their tiles: see code_tiles_cuda.h.
//
// Shared memory (bytes): queries [kRows][kDim], a tile of keys [64][kDim], one of values
// [64][kDim], addresses of keys [2][64], the item. The values of a tile arrive while its scores are
// made, the next keys while its weights are used.

#include <type_traits>

#include "cuda/check.h"
#include "cuda/shared_memory.h"

#include "ops/attention/prefill/code_tiles_cuda.h"
#include "ops/attention/prefill/launch.h"
#include "ops/attention/prefill/not_finite_cuda.h"
#include "ops/attention/prefill/rotate_cuda.h"

namespace heddle::cuda::attention::prefill {

template <int kDim, class More>
using ShapeOf = Shape<kDim, !std::is_same_v<More, NoRotation>, std::is_same_v<More, KvScaleParams>>;

/// Writes the rows of a warp, NaN where the tables are wrong. They go through the place of their
/// queries in shared memory, so that whole lines are written.
template <class T, class S>
__device__ void write_rows(const PrefillParams& p, const PrefillItem item, int warp, int lane,
                           std::byte* shared, PrefillSoftmax<S>& softmax) {
#pragma unroll
  for (int m = 0; m < S::kProductRows; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = warp * S::kWarpRows + m * 16 + h * 8 + lane / 4;
      float sum = softmax.sum[m][h];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      if (item.first_page < 0) sum = NAN;
      const float factor = sum == 0.0f ? 0.0f : __fdividef(1.0f, sum);
#pragma unroll
      for (int d = 0; d < S::kDim / 8; ++d) {
        const float* const o = &softmax.o[m][d][2 * h];
        *reinterpret_cast<uint32_t*>(shared + vector_offset<S::kDim>(row, d) + lane % 4 * 4) =
            narrow_two<T>({o[0] * factor, o[1] * factor});
      }
      if (p.call.lse == nullptr || lane % 4 != 0 || row >= item.num_rows) continue;
      const Row at = row_of(p, item, row);
      p.call.lse[(item.first_token + at.token) * p.call.lse_token + at.head * p.call.lse_head] =
          sum == 0.0f ? -INFINITY : softmax.max[m][h] * p.scale + __logf(sum);
    }
  }
  __syncwarp();
  constexpr int kVectors = S::kDim / 8;
#pragma unroll 4
  for (int i = lane; i < S::kWarpRows * kVectors; i += 32) {
    const int row = warp * S::kWarpRows + i / kVectors, element = i % kVectors * 8;
    if (row >= item.num_rows || element >= p.call.head_dim) continue;
    const Row at = row_of(p, item, row);
    const int64_t offset = (item.first_token + at.token) * p.call.o_token + at.head * p.call.o_head;
    auto* const to = reinterpret_cast<T*>(p.call.o) + offset + element;
    const std::byte* const from = shared + vector_offset<S::kDim>(row, element / 8);
    if (!S::kGeneral || p.call.is_q_aligned) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    } else {
      for (int e = 0; e < min(8, p.call.head_dim - element); ++e) {
        to[e] = reinterpret_cast<const T*>(from)[e];
      }
    }
  }
}

// o = softmax(scale q k^T) v with an online softmax. Grid: AttentionChoice::num_blocks, an upper
// bound; blocks without an item leave at once. Block: S::kThreads.
//
// What a row sums up, and in which order, depends on the positions of its keys alone: tiles begin
// at fixed positions, a tile that a row does not see leaves the row's state as it is, and no sum
// runs over rows.
template <class T, int kDim, class More>
__global__ void __launch_bounds__(ShapeOf<kDim, More>::kThreads, 2)
    prefill_kernel(const __grid_constant__ PrefillParams p, const __grid_constant__ More more) {
  using S = ShapeOf<kDim, More>;
  using C = std::conditional_t<S::kCodes, CodeCopier<S>, Copier<S>>;
  constexpr bool kRotates = std::is_same_v<More, RotaryFrequencies>;
  extern __shared__ uint4 memory[];
  auto* const shared = reinterpret_cast<std::byte*>(memory);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  auto& item = *reinterpret_cast<PrefillItem*>(shared + S::kItemAt);
  if (warp == 0) {
    // The last tiles of a prompt see the most keys: they come first.
    const auto number = static_cast<int>(gridDim.x - 1 - blockIdx.x);
    const int place = divide(number, p.by_kv_heads);
    find_item<S>(p, place, number - place * p.call.num_kv_heads, item,
                 [&](int seq) { report_sequence(p.call.kv, "batch_prefill", seq); });
  } else {
    check_starts<S>(p);
  }
  __syncthreads();
  if (item.num_rows <= 0) return;
  // A warp skips the tiles after the last key that one of its rows sees.
  const bool has_rows = warp * S::kWarpRows < item.num_rows;
  const int warp_end = has_rows ? keys_of_row(p, item, (warp + 1) * S::kWarpRows - 1).end : 0;
  bool rotates = false;
  if constexpr (kRotates) {
    rotates = more.num_pairs != 0;
    if (rotates) {
      leave_frequencies<S>(more, reinterpret_cast<Turns*>(shared + S::kFrequenciesAt));
    }
  }

  const C copier(shared, p.call.head_dim);
  const KeyTiles<S, C> keys(shared, item);
  keys.look_up(p, item, item.begin);
  commit_copies();
  copier.copy_queries(p, item);
  wait_for_copies<0>();
  if constexpr (S::kCodes) fetch_scales<S>(p, more, item, keys, item.begin, shared);
  keys.leave_address(p, item, item.begin);
  __syncthreads();
  keys.fetch(p, item, copier, item.begin, S::kKeysAt, 0);

  const LaneAddresses<S> at(shared, warp, lane);
  PrefillSoftmax<S> softmax;
#pragma unroll 1
  for (int tile = item.begin; tile * S::kKeys < keys.num_keys; ++tile) {
    const bool is_masked = item.is_masked(tile), works = tile * S::kKeys < warp_end;
    wait_for_copies<0>();
    if constexpr (S::kCodes) copier.template put_keys<T>();
    __syncthreads();
    keys.look_up(p, item, tile + 1);
    if (!rotates) keys.fetch(p, item, copier, tile, S::kValuesAt, p.call.kv.value_distance);
    if constexpr (kRotates) {
      if (rotates) {
        if (tile == item.begin) rotate_queries<T, S>(p, more.num_pairs, item, shared);
        rotate_keys<T, S>(more.num_pairs, tile * S::kKeys, shared);
        __syncthreads();
      }
    }
    Scores<S> s;
    // By all warps. In the branch below the compiler would spill, and order the products worse.
    clear_scores<S>(s);
    if constexpr (kRotates) {
      // Rotated: queries * low keys, low queries * keys, then queries * keys as without rotation.
#pragma unroll 1
      for (int part = rotates ? 0 : 2; part < 3; ++part) {
        if (part == 1) {
          __syncthreads();  // values overwrite the low keys
          keys.fetch(p, item, copier, tile, S::kValuesAt, p.call.kv.value_distance);
        }
        if (works) {
          add_scores<T, S>(at.queries + (part == 1 ? S::kLowQueriesAt : 0),
                           at.keys + (part == 0 ? S::kLowKeysAt - S::kKeysAt : 0), s);
        }
      }
    } else if (works) {
      add_scores<T, S>(at.queries, at.keys, s);
    }
    wait_for_copies<0>();
    bool is_guarded = false;
    if constexpr (S::kCodes) {
      is_guarded = copier.template put_values<T>(more, scales_of_tile<S>(shared, tile));
      fetch_scales<S>(p, more, item, keys, tile + 1, shared);
    }
    keys.leave_address(p, item, tile + 1);
    if (is_masked) {
      if constexpr (!S::kCodes) is_guarded = any_not_finite<T>(copier);
      is_guarded = __syncthreads_or(is_guarded) != 0;
    } else {
      is_guarded = false;
      __syncthreads();
    }
    keys.fetch(p, item, copier, tile + 1, S::kKeysAt, 0);
    if (!works) continue;
    if constexpr (S::kCodes) {
      if (more.has_token_scales) scale_scores<S>(scales_of_tile<S>(shared, tile), lane, s);
    }
    if constexpr (S::kGeneral) {
      if (p.is_transformed) transform_scores<S>(p.call, s);
    }
    if (is_masked) mask_scores<S>(p, item, tile * S::kKeys, s);
    softmax.raise_max(s, p.scale_log2);
    if (is_guarded) {
      add_guarded_values<T, S>(at, s, p.scale_log2, softmax);
    } else {
      softmax.template add_values<T>(at, s, p.scale_log2);
    }
  }
  if ((item.has_no_page[0] | item.has_no_page[1]) != 0 && threadIdx.x == 0) {
    report_page(p.call.kv, "batch_prefill", item.seq, item.no_page);
  }
  wait_for_copies<0>();
  if (item.begin >= item.end) __syncthreads();  // no tile: the queries have been copied for nothing
  if (has_rows) write_rows<T, S>(p, item, warp, lane, shared, softmax);
}

template <class T, int kDim, class More>
void launch_instance(const PrefillParams& p, const More& more, int64_t num_blocks,
                     const AttentionLaunch& launch) {
  using S = ShapeOf<kDim, More>;
  using Element = std::conditional_t<std::is_same_v<T, half>, __half, __nv_bfloat16>;
  constexpr auto kKernel = prefill_kernel<Element, kDim, More>;
  constexpr bool kRotates = std::is_same_v<More, RotaryFrequencies>;
  int bytes = S::kSharedBytes;
  if constexpr (kRotates) bytes = more.num_pairs != 0 ? S::kRotatingBytes : bytes;
  allow_shared_memory<kKernel, kRotates ? S::kRotatingBytes : S::kSharedBytes>(launch.device);
  kKernel<<<static_cast<unsigned>(num_blocks), S::kThreads, bytes, launch.stream>>>(p, more);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda::attention::prefill
