#include <cassert>

#include "cuda/check.h"

#include "ops/lora/device/params.h"
#include "ops/lora/fused/aligned_cuda.h"

namespace heddle::cuda {
namespace {

/// The units of expand from this one on, for a block that waited in vain: it makes the sums that lack itself.
template <class T, bool kAligned, bool kIsWide>
__device__ __noinline__ void expand_alone(const LoraDirectParams& p, LoraDirectShared& s,
                                          Share units, bool twice) {
  const int4 plan = *reinterpret_cast<const int4*>(p.plan);
  const int num_outputs = kLoraOutTile << twice;
#pragma unroll 1
  for (; units.begin < units.end; units.begin += units.step) {
    const ExpandUnit unit(p, plan.z, units.begin, twice);
    const ExpandWeight<T, kAligned> w(p, unit);
    if (w.rank == 0) continue;
    remake_sums<T, kAligned>(p, s, plan.z, unit, w.rank);
    ExpandData data;
    load_expand<T, kAligned, kIsWide>(p, unit, w, num_outputs, data);
    finish_expand<T, kAligned, kIsWide>(p, s, plan.z, unit, w, num_outputs, false, data);
  }
}

/// Units of shrink, then units of expand; a block has neighbours of either kind, so that the next mostly begins where the one
/// before ends. The first of either are asked for before it is known how many there are: they are right where no block has
/// more than one, as with kIsSingle, which leaves out all that the next would need.
template <class T, bool kAligned, bool kIsWide, bool kIsSingle>
__device__ void run_units(const LoraDirectParams& p, LoraDirectShared& s) {
  const bool is_counter = threadIdx.x == kLoraThreads - 1;
  uint64_t before = 0;
  if (is_counter) before = arrive(p.arrivals);
  // Numbers of parts, tiles, partials, and whether ranks differ.
  const int4 plan = *reinterpret_cast<const int4*>(p.plan);
  const bool is_mixed = kIsWide && plan.w != 0;
  const int num_shrinks = plan.y * p.num_slices * p.num_chunks;
  const int num_expands = plan.x * p.items_per_part[0];
  Share shrinks(static_cast<int>(blockIdx.x)), expands = shrinks;
  ShrinkUnit shrink;
  ExpandUnit expand;
  bool twice = false;
#pragma unroll 1
  for (;;) {
    const Share asked_shrinks = shrinks, asked_expands = expands;
    const bool asked_twice = twice;
    shrink = ShrinkUnit(p, *p.plan, plan.z, shrinks.begin);
    expand = ExpandUnit(p, plan.z, expands.begin, twice);
    if constexpr (kIsSingle) {
      shrinks.end = min(shrinks.end, num_shrinks), expands.end = min(expands.end, num_expands);
      break;
    }
    twice = !kIsWide && num_expands >= 2 * static_cast<int>(gridDim.x);
    shrinks = Share(num_shrinks, p.block_reciprocal);
    const int num_units = twice ? plan.x * p.items_per_part[1] : num_expands;
    // Units of adapters with more ranks take longer: neighbours would have them all.
    expands = is_mixed ? Share::strided(num_units) : Share(num_units, p.block_reciprocal);
    const bool is_right = asked_twice == twice && asked_shrinks.is_right_for(shrinks) &&
                          asked_expands.is_right_for(expands);
    if (is_right) break;
  }
  if (num_expands == 0) {
    if (is_counter) flag_of(before, p.arrivals);
    return;
  }
  const int num_outputs = kLoraOutTile << twice;
  const bool has_shrink = shrinks.begin < shrinks.end, has_expand = expands.begin < expands.end;
  LoraWeight a;
  ExpandWeight<T, kAligned> b;
  ShrinkData x;
  ExpandData y;
  if (has_shrink) a = read_entry(p.a, p.a_stride, shrink.slot, shrink.slice);
  if (has_expand) b = ExpandWeight<T, kAligned>(p, expand);
  if (has_shrink) load_shrink<T, kAligned>(p, shrink, a, x);
  if (is_counter) s.flag = flag_of(before, p.arrivals);
#pragma unroll 1
  for (int turn = 0;; turn ^= 1) {
    const ShrinkUnit unit = shrink;
    const bool has_next = !kIsSingle && ++shrinks.begin < shrinks.end;
    const bool is_same = unit.chunk + 1 < p.num_chunks;
    if (has_next && is_same) shrink.advance(plan.z);
    if (has_next && !is_same) shrink = ShrinkUnit(p, *p.plan, plan.z, shrinks.begin);
    if (has_shrink) multiply_shrink<T, kAligned>(p, unit, x, s.sums[turn]);
    if (has_next && !is_same) a = read_entry(p.a, p.a_stride, shrink.slot, shrink.slice);
    if (has_next) load_shrink<T, kAligned>(p, shrink, a, x);
    if (!has_next && b.rank > 0) load_expand<T, kAligned, kIsWide>(p, expand, b, num_outputs, y);
    if (has_shrink) {
      __syncthreads();
      publish_sums(p.partials, s.flag, unit.partial, unit.num_rows, s.sums[turn]);
    }
    if (!has_next) break;
  }
  bool is_held = false;
#pragma unroll 1
  while (expands.begin < expands.end) {
    if (b.rank > 0 &&
        !finish_expand<T, kAligned, kIsWide>(p, s, plan.z, expand, b, num_outputs, is_held, y)) {
      return expand_alone<T, kAligned, kIsWide>(p, s, expands, twice);
    }
    expands.begin += kIsWide ? expands.step : 1;
    if (kIsSingle || expands.begin >= expands.end) return;
    is_held = expand.advance(p, num_outputs) && !is_mixed;
    if (is_held) {
      b.data += num_outputs * b.stride;
    } else {
      expand = ExpandUnit(p, plan.z, expands.begin, twice);
      b = ExpandWeight<T, kAligned>(p, expand);
    }
    if (b.rank > 0) load_expand<T, kAligned, kIsWide>(p, expand, b, num_outputs, y);
  }
}

template <class T, bool kAligned, bool kIsWide, bool kIsSingle>
__global__ void __launch_bounds__(kLoraThreads, kLoraDirectBlocks)
    lora_direct_kernel(const __grid_constant__ LoraDirectParams p) {
  __shared__ LoraDirectShared s;
  run_units<T, kAligned, kIsWide, kIsSingle>(p, s);
}

template <class T, bool kAligned, bool kIsWide, bool kIsSingle>
void run(const LoraDirectParams& p, int num_blocks, cudaStream_t stream) {
  lora_direct_kernel<T, kAligned, kIsWide, kIsSingle>
      <<<static_cast<unsigned>(num_blocks), kLoraThreads, 0, stream>>>(p);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

template <class T, bool kAligned, bool kIsWide>
void run_wide(const LoraDirectParams& p, const LoraDirectLaunch& launch, cudaStream_t stream) {
  if (launch.is_single) return run<T, kAligned, kIsWide, true>(p, launch.num_blocks, stream);
  if constexpr (kAligned || !kIsWide) {
    run<T, kAligned, kIsWide, false>(p, launch.num_blocks, stream);
  } else {
    assert(!"has_direct_kernel() leaves these to lora_direct_any");
  }
}

template <class T, bool kAligned>
void run_typed(const LoraDirectParams& p, const LoraDirectLaunch& launch, cudaStream_t stream) {
  launch.is_wide ? run_wide<T, kAligned, true>(p, launch, stream)
                 : run_wide<T, kAligned, false>(p, launch, stream);
}

}  // namespace

template <>
void launch_lora_direct<bfloat16>(const LoraDirectParams& p, const LoraDirectLaunch& launch,
                                  cudaStream_t stream) {
  launch.is_aligned ? run_typed<__nv_bfloat16, true>(p, launch, stream)
                    : run_typed<__nv_bfloat16, false>(p, launch, stream);
}
template <>
void launch_lora_direct<half>(const LoraDirectParams& p, const LoraDirectLaunch& launch,
                              cudaStream_t stream) {
  launch.is_aligned ? run_typed<__half, true>(p, launch, stream)
                    : run_typed<__half, false>(p, launch, stream);
}

}  // namespace heddle::cuda
