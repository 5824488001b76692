#pragma once

#include "cuda/check.h"
#include "cuda/shared_memory.h"

#include "ops/lora/fused/general_cuda.h"

namespace heddle::cuda::lora {

// All of a lora_apply for the window blockIdx.y. A block takes its items of shrink, then its items
// of expand, and loads the next item while it multiplies or writes the one before.
// kOneItemPerBlock: no block has more than one item of a kind, so the loops are left out. Grid:
// (blocks of a window, windows), all of which run at the same time.
template <class T, bool kOneItemPerBlock>
__global__ void __launch_bounds__(kBlockThreads, kFusedBlocksPerSm)
    fused_general_kernel(const __grid_constant__ FusedGeneralParams p) {
  extern __shared__ uint4 memory[];
  auto& s = *reinterpret_cast<GeneralShared*>(memory);
  const bool is_counter = threadIdx.x == kBlockThreads - 1;
  uint64_t before = 0;
  if (is_counter) before = arrive(p.arrivals);
  const GeneralWindow w(p, s, static_cast<int>(blockIdx.y));
  const int num_shrinks = w.num_tiles * p.num_slices * p.num_chunks;
  const int num_expands = w.num_row_tiles * p.items_per_row_tile[0];
  BlockRange shrinks(static_cast<int>(blockIdx.x)), expands = shrinks;
  if (!kOneItemPerBlock) {
    shrinks = BlockRange(num_shrinks, p.block_reciprocal);
    expands = BlockRange(num_expands, p.block_reciprocal);
  }
  ShrinkItem shrink(p, w.plan, w.num_partials, shrinks.begin);
  GeneralExpand expand;
  expand.item = GeneralExpandItem(w, expands.begin);
  expand.weights.rank = 0;
  shrinks.end = min(shrinks.end, num_shrinks), expands.end = min(expands.end, num_expands);
  const bool has_shrink = shrinks.begin < shrinks.end;
  LoraWeight a;
  ShrinkData x;
  if (has_shrink) a = read_weight(p.a_at, shrink.slot, shrink.slice);
  if (expands.begin < expands.end) expand.describe(p);
  if (has_shrink) load_general_shrink(w, shrink, a, x);
  if (is_counter) s.flag = flag_of(before, p.arrivals);
  if (w.head.is_foreign) {
    return refuse_plan(p, "lora_apply", p.y_dtype, w.first_row,
                       min(kWindowRows, p.num_rows - w.first_row), w.head.tag,
                       static_cast<int>(blockIdx.x * kBlockThreads + threadIdx.x),
                       static_cast<int>(gridDim.x) * kBlockThreads);
  }
#pragma unroll 1
  for (int turn = 0;; turn ^= 1) {
    const ShrinkItem item = shrink;
    const bool has_next = !kOneItemPerBlock && ++shrinks.begin < shrinks.end;
    const bool is_same = item.chunk + 1 < p.num_chunks;
    if (has_next && is_same) shrink.advance(w.num_partials);
    if (has_next && !is_same) shrink = ShrinkItem(p, w.plan, w.num_partials, shrinks.begin);
    if (has_shrink) multiply_general_shrink<T>(w, item, x, s.sums[turn]);
    if (has_next && !is_same) a = read_weight(p.a_at, shrink.slot, shrink.slice);
    if (has_next) load_general_shrink(w, shrink, a, x);
    if (!has_next && expand.weights.rank > 0) expand.load(p);
    if (has_shrink) {
      __syncthreads();
      publish_sums(w.words, s.flag, item.partial, item.num_rows, s.sums[turn]);
    }
    if (!has_next) break;
  }
  bool is_cached = false;
#pragma unroll 1
  while (expands.begin < expands.end) {
    const int rank = expand.weights.rank;
    if (rank > 0) {
      while (!is_cached && !gather_general_h<T>(w, expand.item, rank)) {
        recompute_general_sums<T>(p, s, expand.item.row_tile, expand.item.slice, rank);
      }
      multiply_item<T>(s, expand);
    }
    const bool has_next = !kOneItemPerBlock && ++expands.begin < expands.end;
    GeneralExpand next;
    is_cached = false;
    if (has_next) {
      next.item = expand.item, next.weights = expand.weights;
      next.factors[0] = expand.factors[0], next.factors[1] = expand.factors[1];
      const bool is_same = next.advance(p);
      is_cached = is_same && rank > 0;
      if (!is_same) {
        next.item = GeneralExpandItem(w, expands.begin);
        next.describe(p);
      }
    }
    if (has_next && next.weights.rank > 0) next.weights.load(0, next.b);
    if (rank > 0) write_item(w, expand);
    if (!has_next) return;
    expand.item = next.item, expand.weights = next.weights, expand.b = next.b;
    expand.factors[0] = next.factors[0], expand.factors[1] = next.factors[1];
    if (expand.weights.rank > 0) expand.load_old(p);
  }
}

template <class T, bool kOneItemPerBlock>
void launch_general_kernel(const FusedGeneralParams& p, int num_blocks, int num_windows, int device,
                           cudaStream_t stream) {
  constexpr auto kKernel = fused_general_kernel<T, kOneItemPerBlock>;
  constexpr int kBytes = sizeof(GeneralShared);
  allow_shared_memory<kKernel, kBytes>(device);
  const dim3 grid(static_cast<unsigned>(num_blocks), static_cast<unsigned>(num_windows));
  kKernel<<<grid, kBlockThreads, kBytes, stream>>>(p);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

template <class T>
void launch_general(const FusedGeneralParams& p, int num_blocks, int num_windows, int device,
                    cudaStream_t stream) {
  if (p.one_item_per_block)
    return launch_general_kernel<T, true>(p, num_blocks, num_windows, device, stream);
  launch_general_kernel<T, false>(p, num_blocks, num_windows, device, stream);
}

}  // namespace heddle::cuda::lora
