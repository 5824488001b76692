#pragma once

#include "cuda/early_launch.h"
#include "cuda/shared_memory.h"

#include "core/math.h"
#include "ops/linear_site/packed/packed_formats.h"
#include "ops/linear_site/packed/packed_kernel_sm90.h"

// The launches of packed_tiles_kernel for all rows of a call.

namespace heddle::cuda::linear_site {

template <WeightType kType, class T>
void launch_tiles(const ExecContext& ctx, const PackedParams& all) {
  constexpr auto kKernel = packed_tiles_kernel<kType, T>;
  const int device = ctx.device.index;
  PackedLaunch p{all, {}, 0};
  for (int s = 0; s < p.num_slices; ++s) {
    p.num_groups += ceil_div(p.slices[s].width, PackedLayout::kGroup);
    p.slices[s].end_tile = p.num_groups;
  }
  if (p.num_groups == 0) return;
  p.d = packed_division(kType, p.num_groups, p.in_features, p.num_rows, ctx.info.num_sms,
                        kLargeSharedBytes);
  allow_shared_memory<kKernel, kPortableSharedBytes, kLargeSharedBytes>(device, p.d.shared_bytes);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(p.d.num_blocks));
  config.blockDim = dim3(static_cast<unsigned>(p.d.warps() * 32));
  config.dynamicSmemBytes = static_cast<size_t>(p.d.shared_bytes);
  config.stream = ctx.stream;
  launch_clusters_early<kKernel>(device, config, static_cast<unsigned>(p.d.cluster_size), p);
}

template <class T>
void launch_packed_tiles(const ExecContext& ctx, const PackedParams& p, WeightType type) {
  for_packed_format(type, [&]<WeightType kType>() {
    if constexpr (has_packed_tiles(kType)) launch_tiles<kType, T>(ctx, p);
  });
}

}  // namespace heddle::cuda::linear_site
