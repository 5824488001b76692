#pragma once

#include <cassert>

#include "cuda/check.h"

#include "ops/lora/fused/aligned_cuda.h"
#include "ops/lora_device/foreign_plan_cuda.h"

namespace heddle::cuda::lora {

/// The rest of a block's expand items after it has waited too long for the sums of another block,
/// which may not even run while other streams occupy the chip: it computes all that it needs
/// itself.
template <class T, bool kAligned, bool kHasRankAbove16>
__device__ __noinline__ void expand_without_waiting(const FusedParams& p, AlignedShared& s,
                                                    BlockRange items, bool double_width) {
  const int4 plan = *reinterpret_cast<const int4*>(p.plan);
  const int num_outputs = kTileOutputs << double_width;
#pragma unroll 1
  for (; items.begin < items.end; items.begin += items.step) {
    const ExpandItem item(p, plan.z, items.begin, double_width);
    const ExpandWeight<T, kAligned> w(p, item);
    if (w.rank == 0) continue;
    recompute_sums<T, kAligned>(p, s, plan.z, item, w.rank);
    ExpandData data;
    load_expand<T, kAligned, kHasRankAbove16>(p, item, w, num_outputs, data);
    finish_expand<T, kAligned, kHasRankAbove16>(p, s, plan.z, item, w, num_outputs, false, data);
  }
}

/// All work of a block: its items of shrink, then its items of expand.
///
///   arrive, load the plan's numbers    | speculative start: the first item of each kind is looked
///                                      | up before the block knows its range
///   load A and x of item 0             | before the flag of the launch is needed
///   multiply item i, load item i + 1   | with the last one: load B and y of the first expand item
///   publish the sums of item i
///   gather h, multiply, add to y       | for each expand item
///
/// A block has consecutive items, so the next one mostly goes on where the one before ends: the
/// next chunk of the same ranks, the next outputs with the same h. Where no block has more than one
/// item of a kind, kOneItemPerBlock leaves out the loops, and the speculative start is always
/// right.
template <class T, bool kAligned, bool kHasRankAbove16, bool kOneItemPerBlock>
__device__ void run_items(const FusedParams& p, AlignedShared& s) {
  const bool is_counter = threadIdx.x == kBlockThreads - 1;
  uint64_t before = 0;
  if (is_counter) before = arrive(p.arrivals);
  const WindowHead plan(*p.plan, p.plan_tag);
  const bool is_mixed = kHasRankAbove16 && plan.is_mixed();
  const int num_shrinks = plan.num_tiles * p.num_slices * p.num_chunks;
  const int num_expands = plan.num_row_tiles * p.items_per_row_tile[0];
  BlockRange shrinks(static_cast<int>(blockIdx.x)), expands = shrinks;
  ShrinkItem shrink;
  ExpandItem expand;
  bool double_width = false;
#pragma unroll 1
  for (;;) {
    const BlockRange speculative_shrinks = shrinks, speculative_expands = expands;
    const bool speculative_width = double_width;
    shrink = ShrinkItem(p, *p.plan, plan.num_partials, shrinks.begin);
    expand = ExpandItem(p, plan.num_partials, expands.begin, double_width);
    if constexpr (kOneItemPerBlock) {
      shrinks.end = min(shrinks.end, num_shrinks), expands.end = min(expands.end, num_expands);
      break;
    }
    double_width = !kHasRankAbove16 && num_expands >= 2 * static_cast<int>(gridDim.x);
    shrinks = BlockRange(num_shrinks, p.block_reciprocal);
    const int num_items = double_width ? plan.num_row_tiles * p.items_per_row_tile[1] : num_expands;
    // Items of high ranks take longer. Of consecutive ones a single block might have all.
    expands = is_mixed ? BlockRange::strided(num_items) : BlockRange(num_items, p.block_reciprocal);
    const bool speculation_holds = speculative_width == double_width &&
                                   speculative_shrinks.starts_like(shrinks) &&
                                   speculative_expands.starts_like(expands);
    if (speculation_holds) break;
  }
  if (num_expands == 0) {
    if (is_counter) flag_of(before, p.arrivals);
    if (plan.is_foreign) {
      constexpr DType kDType = std::is_same_v<T, __half> ? DType::kFloat16 : DType::kBFloat16;
      refuse_plan(p, "lora_apply", kDType, 0, p.num_rows, plan.tag,
                  static_cast<int>(blockIdx.x * kBlockThreads + threadIdx.x),
                  static_cast<int>(gridDim.x) * kBlockThreads);
    }
    return;
  }
  const int num_outputs = kTileOutputs << double_width;
  const bool has_shrink = shrinks.begin < shrinks.end, has_expand = expands.begin < expands.end;
  LoraWeight a;
  ExpandWeight<T, kAligned> b;
  ShrinkData x;
  ExpandData y;
  if (has_shrink) a = read_entry(p.a, p.a_stride, shrink.slot, shrink.slice);
  if (has_expand) b = ExpandWeight<T, kAligned>(p, expand);
  const bool prefetches =
      kAligned && kHasRankAbove16 && !kOneItemPerBlock && prefetches_a(shrinks.end - shrinks.begin);
  if (has_shrink) load_shrink<T, kAligned>(p, shrink, a, x);
  if (prefetches) prefetch_next_chunk<T>(p, shrink, a);
  if (is_counter) s.flag = flag_of(before, p.arrivals);
#pragma unroll 1
  for (int turn = 0;; turn ^= 1) {
    const ShrinkItem item = shrink;
    const bool has_next = !kOneItemPerBlock && ++shrinks.begin < shrinks.end;
    const bool is_same = item.chunk + 1 < p.num_chunks;
    if (has_next && is_same) shrink.advance(plan.num_partials);
    if (has_next && !is_same) shrink = ShrinkItem(p, *p.plan, plan.num_partials, shrinks.begin);
    if (has_shrink) multiply_shrink<T, kAligned>(p, item, x, s.sums[turn]);
    if (has_next && !is_same) a = read_entry(p.a, p.a_stride, shrink.slot, shrink.slice);
    if (has_next) load_shrink<T, kAligned>(p, shrink, a, x);
    // Only what this block itself loads next: a chunk too many costs what the others gain.
    if (prefetches && shrinks.begin + 1 < shrinks.end) prefetch_next_chunk<T>(p, shrink, a);
    if (!has_next && b.rank > 0)
      load_expand<T, kAligned, kHasRankAbove16>(p, expand, b, num_outputs, y);
    if (has_shrink) {
      __syncthreads();
      publish_sums(p.partials, s.flag, item.partial, item.num_rows, s.sums[turn]);
    }
    if (!has_next) break;
  }
  bool is_cached = false;
#pragma unroll 1
  while (expands.begin < expands.end) {
    if (b.rank > 0 && !finish_expand<T, kAligned, kHasRankAbove16>(p, s, plan.num_partials, expand,
                                                                   b, num_outputs, is_cached, y)) {
      return expand_without_waiting<T, kAligned, kHasRankAbove16>(p, s, expands, double_width);
    }
    expands.begin += kHasRankAbove16 ? expands.step : 1;
    if (kOneItemPerBlock || expands.begin >= expands.end) return;
    is_cached = expand.advance(p, num_outputs) && !is_mixed;
    if (is_cached) {
      b.data += num_outputs * b.stride;
    } else {
      expand = ExpandItem(p, plan.num_partials, expands.begin, double_width);
      b = ExpandWeight<T, kAligned>(p, expand);
    }
    if (b.rank > 0) load_expand<T, kAligned, kHasRankAbove16>(p, expand, b, num_outputs, y);
  }
}

template <class T, bool kAligned, bool kHasRankAbove16, bool kOneItemPerBlock>
__global__ void __launch_bounds__(kBlockThreads, kFusedBlocksPerSm)
    fused_aligned_kernel(const __grid_constant__ FusedParams p) {
  __shared__ AlignedShared s;
  run_items<T, kAligned, kHasRankAbove16, kOneItemPerBlock>(p, s);
}

template <class T, bool kAligned, bool kHasRankAbove16, bool kOneItemPerBlock>
void launch_aligned_kernel(const FusedParams& p, int num_blocks, cudaStream_t stream) {
  fused_aligned_kernel<T, kAligned, kHasRankAbove16, kOneItemPerBlock>
      <<<static_cast<unsigned>(num_blocks), kBlockThreads, 0, stream>>>(p);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

template <class T, bool kAligned, bool kHasRankAbove16>
void run_ranks(const FusedParams& p, const FusedLaunch& launch, cudaStream_t stream) {
  if (launch.one_item_per_block)
    return launch_aligned_kernel<T, kAligned, kHasRankAbove16, true>(p, launch.num_blocks, stream);
  if constexpr (kAligned || !kHasRankAbove16) {
    launch_aligned_kernel<T, kAligned, kHasRankAbove16, false>(p, launch.num_blocks, stream);
  } else {
    assert(!"select_lora_kernel() leaves these to the general kernel");
  }
}

template <class T, bool kAligned>
void launch_aligned(const FusedParams& p, const FusedLaunch& launch, cudaStream_t stream) {
  launch.has_rank_above_16 ? run_ranks<T, kAligned, true>(p, launch, stream)
                           : run_ranks<T, kAligned, false>(p, launch, stream);
}

}  // namespace heddle::cuda::lora
