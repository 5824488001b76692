#include "ops/linear_site/prompt/select_prompt.h"

#include <algorithm>
#include <ostream>

#include "core/math.h"
#include "ops/linear_site/prompt/prompt_shape.h"

namespace heddle {
namespace {

// What a wave of tiles takes, in hundredths of the products of 128 x 128 alone: small tiles load
// more for each product, and so do blocks that share no weights.
constexpr int kTileCost = 100, kLoadCost = 12, kAloneCost = 6;
constexpr int kGroupTiles = 16;  // row tiles whose x stays in the L2 cache

int64_t num_output_tiles(const SiteCall& call, int tile_outputs) {
  int64_t tiles = 0;
  for (int s = 0; s < call.num_slices; ++s) tiles += ceil_div(call.widths[s], tile_outputs);
  return tiles;
}

}  // namespace

PromptKernel select_prompt_kernel(const SiteCall& call, const DeviceInfo& info) {
  PromptKernel best;
  if (info.compute_capability != 90 || !call.fits_tensor_maps) return best;
  const int64_t row_tiles = ceil_div(call.rows, cuda::linear_site::kPromptTileRows);
  int64_t least = INT64_MAX;
  for (const int outputs : {256, 128, 64}) {
    for (const int cluster_size : {2, 1}) {
      if (cluster_size > row_tiles || cluster_size > info.num_sms) continue;
      const int64_t clusters = info.num_sms / cluster_size;
      const int64_t units = ceil_div(row_tiles, cluster_size);
      const int64_t tiles = units * num_output_tiles(call, outputs);
      const int64_t of_tile =
          outputs * kTileCost / 128 + kLoadCost + (cluster_size == 1 ? kAloneCost : 0);
      const int64_t cost = ceil_div(tiles, clusters) * of_tile;
      if (tiles == 0 || cost >= least) continue;
      least = cost;
      best = {.is_general = false,
              .tile_outputs = outputs,
              .cluster_size = cluster_size,
              .group_units = kGroupTiles / cluster_size,
              .num_blocks = static_cast<int>(std::min(tiles, clusters) * cluster_size)};
    }
  }
  return best;
}

std::ostream& operator<<(std::ostream& out, const PromptKernel& k) {
  if (k.is_general) return out << "general";
  return out << "prompt_sm90 tile=" << k.tile_outputs << " cluster=" << k.cluster_size
             << " group=" << k.group_units << " blocks=" << k.num_blocks;
}

}  // namespace heddle
