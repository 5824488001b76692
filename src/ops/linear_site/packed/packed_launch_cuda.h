#pragma once

#include <algorithm>

#include "cuda/early_launch.h"
#include "cuda/shared_memory.h"

#include "core/math.h"
#include "ops/linear_site/packed/packed_formats.h"
#include "ops/linear_site/packed/packed_kernel_cuda.h"
#include "ops/linear_site/packed/packed_params.h"
#include "ops/linear_site/packed/packed_shape.h"

// The launches of packed_kernel for all rows of a call, and of all formats.

namespace heddle::cuda::linear_site {

template <WeightType kType, class T>
void launch_packed_format(const ExecContext& ctx, PackedParams p) {
  constexpr PackedShape kShape(kType);
  constexpr auto kKernel = packed_kernel<kType, T>;
  constexpr int kSmall = packed_row_tiles_in(kShape, kPortableSharedBytes);
  static_assert(kShape.bytes(kPackedRowTiles) <= kLargeSharedBytes);
  const int chip = ctx.info.compute_capability / 10, device = ctx.device.index;
  const int launch_rows = chip == 9 || chip == 10 ? kPackedRows : kSmall * kPackedRowTile;
  int tiles = 0;
  for (int s = 0; s < p.num_slices; ++s) {
    tiles += ceil_div(p.slices[s].width, kShape.tile_outputs);
    p.slices[s].end_tile = tiles;
  }
  if (tiles == 0) return;
  p.cluster_size = can_start_early<kKernel>(device) ? packed_cluster_size(tiles, p.in_features) : 1;
  const PackedParams all = p;
  for (int row = 0; row < all.num_rows; row += launch_rows) {
    p.num_rows = std::min(launch_rows, all.num_rows - row);
    p.x = static_cast<const T*>(all.x) + row * p.x_stride;
    for (int s = 0; s < p.num_slices; ++s) {
      const int64_t bytes = p.y_dtype == DType::kFloat32 ? sizeof(float) : sizeof(T);
      p.slices[s].y = static_cast<std::byte*>(all.slices[s].y) + row * p.slices[s].y_stride * bytes;
    }
    const int shared = kShape.bytes(packed_row_tiles(p.num_rows));
    allow_shared_memory<kKernel, kShape.bytes(kSmall), kShape.bytes(kPackedRowTiles)>(device,
                                                                                      shared);
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(tiles * p.cluster_size));
    config.blockDim = dim3(kPackedThreads);
    config.dynamicSmemBytes = static_cast<size_t>(shared);
    config.stream = ctx.stream;
    launch_clusters_early<kKernel>(device, config, static_cast<unsigned>(p.cluster_size), p);
    p.signal = nullptr;  // the kernel before the next rows is this one
  }
}

template <class T>
void launch_packed_rows(const ExecContext& ctx, const PackedParams& p, WeightType type) {
  for_packed_format(type, [&]<WeightType kType>() { launch_packed_format<kType, T>(ctx, p); });
}

}  // namespace heddle::cuda::linear_site
