#pragma once

#include "ops/linear_site/call/site_call.h"

namespace heddle::cuda::linear_site {

/// A tile of outputs of a launch: which slice it is of, its first output there, and its width.
struct Tile {
  int slice = 0, first_output, width;

  /// Params: with slices that have a width and an end_tile.
  template <class Params>
  __device__ Tile(const Params& p, int tile, int tile_outputs) {
#pragma unroll
    for (int s = 0; s < kMaxLaunchSlices - 1; ++s) {
      slice += s < p.num_slices - 1 && tile >= p.slices[s].end_tile;
    }
    const int begin = slice == 0 ? 0 : p.slices[slice - 1].end_tile;
    first_output = (tile - begin) * tile_outputs;
    width = min(tile_outputs, p.slices[slice].width - first_output);
  }
};

}  // namespace heddle::cuda::linear_site
