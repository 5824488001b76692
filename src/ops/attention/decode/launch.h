#pragma once

#include "ops/attention/decode/decode_params.h"

namespace heddle::cuda::attention::decode {

/// What of the choice a launch needs.
struct Grid {
  int dim;        // of the heads: 64, 128 or 256
  int row_tiles;  // of 8 rows: 1, 2 or, of bundles, 4
  int num_blocks;
};

/// Params: DecodeLaunchParams, RotatingDecodeParams where keys rotate inside, or CodeDecodeParams.
/// The call is not empty.
template <class Params>
void launch(const Params& p, const Grid& grid, const AttentionLaunch& launch);

/// One instance of the kernel. T: half, bfloat16 or, with CodeDecodeParams, float8_e4m3, which is
/// the cache's dtype then. The files of instances/ have them.
template <class T, int kDim, int kRowTiles, class Params>
void launch_instance(const Params& p, int num_blocks, const AttentionLaunch& launch);

}  // namespace heddle::cuda::attention::decode
