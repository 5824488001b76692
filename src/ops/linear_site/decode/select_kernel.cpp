#include "ops/linear_site/decode/select_kernel.h"

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
// Less the block of A x of the next site, which is resident at the same time.
constexpr uint32_t kSharedBytesBesideShrink = kSharedBytes - 14 * 1024;
constexpr int kLoadingBytes = 64 * 1024;  // of weights in flight: more arrive no sooner
constexpr int kMinWeightStages = 2, kMinXStages = 2, kXStages = 4;
// Few rows of x leave room for more stages.
constexpr int kXBytes = 32 * 1024, kMaxXStages = 8;
// Of one group of 64 rows, and of two, whose sums take more registers.
constexpr std::array kTileOutputs = {64, 96, 144, 224};
constexpr std::array kTileOutputsOfTwo = {96, 112, 144};

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

/// Stages of weights that a block multiplies in all.
int num_stages(const SiteCall& call, const SiteKernel& kernel, int stage_boxes, int num_sms) {
  const int64_t boxes =
      ceil_div(ceil_div(call.in_features, int64_t{cuda::linear_site::kBoxFeatures}),
               int64_t{kernel.cluster_size});
  const int64_t tiles = kernel.cluster_size > 1
                            ? 1
                            : ceil_div(num_tiles(call, kernel.tile_outputs), int64_t{num_sms});
  return static_cast<int>(ceil_div(boxes, int64_t{stage_boxes}) * tiles);
}

/// The rings, in what the rest of a block leaves of its shared memory. False where that is too
/// little.
bool fit_rings(const SiteCall& call, const DeviceInfo& info, SiteKernel& kernel) {
  const int rows = static_cast<int>(call.rows);
  SharedShape shape{.tile_outputs = kernel.tile_outputs,
                    .groups = kernel.groups,
                    .cluster_size = kernel.cluster_size,
                    .num_rows = rows,
                    .max_rank = call.max_rank};
  const uint32_t limit = call.max_rank > 0 ? kSharedBytesBesideShrink : kSharedBytes;
  const int weight_box = kernel.tile_outputs * cuda::kSwizzledRowBytes;
  const int x_box = cuda::linear_site::x_box_rows(rows) * cuda::kSwizzledRowBytes;
  // 256 bytes of a row at once come faster than 128, but rings need more than three stages. With
  // two groups of rows steps of 128 bytes were faster.
  constexpr int kMaxDoubleBox = 20 * 1024;
  for (const int boxes : {2, 1}) {
    if (boxes == 2 && (kernel.groups > 1 || weight_box > kMaxDoubleBox)) continue;
    const int least = boxes == 2 ? kXStages - 1 : kXStages;
    shape.stage_boxes = boxes;
    shape.x_stages = std::clamp(kXBytes / (boxes * x_box), least, kMaxXStages);
    for (; shape.x_stages >= kMinXStages; --shape.x_stages) {
      const int least_stages = kMinWeightStages + (boxes == 2 ? 1 : 0);
      shape.weight_stages = std::clamp(num_stages(call, kernel, boxes, info.num_sms), least_stages,
                                       cuda::linear_site::kMaxStages);
      while (shape.weight_stages > 0 && SharedLayout(shape).bytes > limit) {
        --shape.weight_stages;
      }
      if (shape.weight_stages < least_stages) continue;
      const bool is_shallow = shape.weight_stages * boxes * weight_box < kLoadingBytes &&
                              shape.weight_stages < num_stages(call, kernel, boxes, info.num_sms);
      if (is_shallow && shape.x_stages > kMinXStages) continue;
      kernel.stage_boxes = boxes;
      kernel.weight_stages = shape.weight_stages;
      kernel.x_stages = shape.x_stages;
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
    if (cost > least || tiles == 0 || !fit_rings(call, info, kernel)) return;
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
