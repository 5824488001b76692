#include "ops/linear_site/run/select_kernel.h"

#include <algorithm>
#include <array>
#include <ostream>

#include "core/math.h"
#include "ops/linear_site/decode/shared_layout.h"

namespace heddle {
namespace {

using cuda::linear_site::SharedLayout;
using cuda::linear_site::SharedShape;

constexpr uint32_t kSharedBytes = 227 * 1024;  // of a block, on compute capability 9.0
constexpr int kLoadingBytes = 64 * 1024;       // of weights under way: more arrive no sooner
constexpr int kMinWeightStages = 2, kMinXStages = 2, kXStages = 4;
// Of one group of 64 rows, and of two, whose sums take more registers.
constexpr std::array kTileOutputs = {64, 96, 144, 224};
constexpr std::array kTileOutputsOfTwo = {64, 96, 144};

/// Clusters that run at once. Some of a chip's groups of multiprocessors have a number that four
/// does not divide: of an H100 and H200 30 clusters of four run, 66 of two.
int64_t num_clusters(int num_sms, int cluster_size) {
  return std::max(1, cluster_size == 4 ? num_sms * 30 / 132 : num_sms / cluster_size);
}

int64_t num_tiles(const SiteCall& call, int tile_outputs) {
  int64_t tiles = 0;
  for (int s = 0; s < call.num_slices; ++s) tiles += ceil_div(call.widths[s], tile_outputs);
  return tiles;
}

/// The rings, in what the rest of a block leaves of its shared memory. False where that is too
/// little.
bool fit_rings(const SiteCall& call, SiteKernel& kernel) {
  SharedShape shape{.tile_outputs = kernel.tile_outputs,
                    .groups = kernel.groups,
                    .cluster_size = kernel.cluster_size,
                    .num_rows = static_cast<int>(call.rows),
                    .max_rank = call.max_rank};
  const uint32_t fixed = SharedLayout(shape).bytes;
  const int weight_box = kernel.tile_outputs * cuda::kSwizzledRowBytes;
  const int x_box = kernel.groups * cuda::linear_site::kGroupRows * cuda::kSwizzledRowBytes;
  // 256 bytes of a row at once come faster than 128, but rings need more than three stages.
  constexpr int kMaxDoubleBox = 20 * 1024;
  for (const int boxes : {2, 1}) {
    if (boxes == 2 && weight_box > kMaxDoubleBox) continue;
    for (int x_stages = boxes == 2 ? kXStages - 1 : kXStages; x_stages >= kMinXStages; --x_stages) {
      const int64_t left = int64_t{kSharedBytes} - fixed - int64_t{x_stages} * boxes * x_box;
      const auto stages =
          std::min<int64_t>(left / (int64_t{boxes} * weight_box), cuda::linear_site::kMaxStages);
      if (stages < kMinWeightStages + (boxes == 2 ? 1 : 0)) continue;
      kernel.stage_boxes = shape.stage_boxes = boxes;
      kernel.weight_stages = shape.weight_stages = static_cast<int>(stages);
      kernel.x_stages = shape.x_stages = x_stages;
      kernel.max_loading =
          std::clamp(kLoadingBytes / (boxes * weight_box), 2, kernel.weight_stages);
      kernel.shared_bytes = SharedLayout(shape).bytes;
      return true;
    }
  }
  return false;
}

}  // namespace

SiteKernel select_site_kernel(const SiteCall& call, const DeviceInfo& info) {
  SiteKernel best;
  if (info.compute_capability != 90 || !call.fits_tensor_maps) return best;
  const int cluster_size = site_cluster_size(call.num_outputs);
  const int groups = call.rows > cuda::linear_site::kGroupRows ? 2 : 1;
  const int64_t clusters = num_clusters(info.num_sms, cluster_size);
  const auto consider = [&](int tile_outputs, int64_t& least) {
    SiteKernel kernel{.is_general = false,
                      .tile_outputs = tile_outputs,
                      .cluster_size = cluster_size,
                      .groups = groups};
    const int64_t tiles = num_tiles(call, tile_outputs);
    // What a block streams: its rows of weights, and x once for each tile.
    const int64_t cost = ceil_div(tiles, clusters) * (tile_outputs + 32 * groups);
    if (cost > least || tiles == 0 || !fit_rings(call, kernel)) return;
    least = cost;
    kernel.num_blocks = static_cast<int>(cluster_size > 1 ? tiles * cluster_size
                                                          : std::min<int64_t>(tiles, info.num_sms));
    best = kernel;
  };
  int64_t least = INT64_MAX;
  if (groups == 1) {
    for (const int outputs : kTileOutputs) consider(outputs, least);
  } else {
    for (const int outputs : kTileOutputsOfTwo) consider(outputs, least);
  }
  return best;
}

std::ostream& operator<<(std::ostream& out, const SiteKernel& k) {
  if (k.is_general) return out << "general";
  return out << "decode_sm90 tile=" << k.tile_outputs << " cluster=" << k.cluster_size
             << " groups=" << k.groups << " blocks=" << k.num_blocks << " boxes=" << k.stage_boxes
             << " weight_stages=" << k.weight_stages << " x_stages=" << k.x_stages
             << " loading=" << k.max_loading << " shared=" << k.shared_bytes;
}

}  // namespace heddle
