#include "ops/linear_site/portable/select_portable.h"

#include <algorithm>
#include <ostream>

#include "core/math.h"
#include "ops/linear_site/portable/portable_shape.h"

namespace heddle {
namespace {

using namespace cuda::linear_site;

bool has_portable(const SiteCall& call, const DeviceInfo& info) {
  return info.compute_capability >= kMinComputeCapability && info.compute_capability != 90 &&
         call.fits_tensor_maps;
}

int64_t num_tiles(const SiteCall& call, int tile_outputs) {
  int64_t tiles = 0;
  for (int s = 0; s < call.num_slices; ++s) {
    tiles += ceil_div(call.widths[s], int64_t{tile_outputs});
  }
  return tiles;
}

}  // namespace

uint32_t shared_bytes_of_block(const DeviceInfo& info) {
  const int chip = info.compute_capability;
  const bool is_large = chip == 80 || chip == 87 || chip / 10 == 9 || chip / 10 == 10;
  return is_large ? kPortableLargeBytes : kPortableSmallBytes;
}

int portable_splits(int64_t num_outputs, int64_t in_features) {
  const int64_t splits = num_outputs < kOutputsOfTwo ? num_outputs < kOutputsOfFour ? 4 : 2 : 1;
  return static_cast<int>(
      std::clamp(ceil_div(in_features, int64_t{kPortableStepFeatures}), int64_t{1}, splits));
}

int64_t portable_parts(int64_t rows, int64_t num_outputs) {
  const auto of_splits = [&](int splits, int64_t most) {
    return splits * (std::min(num_outputs, most) + kMaxLaunchSlices * kPortableMaxTile) *
           round_up(rows, int64_t{8}) / 4;
  };
  return std::max(of_splits(4, kOutputsOfFour - 1), of_splits(2, kOutputsOfTwo - 1));
}

PortableKernel select_portable_decode(const SiteCall& call, const DeviceInfo& info) {
  PortableKernel best;
  if (!has_portable(call, info)) return best;
  const int rows = static_cast<int>(round_up(call.rows, int64_t{16}));
  const int splits = portable_splits(call.num_outputs, call.in_features);
  const uint32_t limit = shared_bytes_of_block(info);
  int64_t least = INT64_MAX;
  for (int outputs = kPortableMinTile; outputs <= kPortableMaxTile; outputs += 16) {
    const int64_t items = num_tiles(call, outputs) * splits;
    const uint32_t box = uint32_t(outputs + rows) * kPortableRowBytes;
    const auto stages = static_cast<uint32_t>(portable_stages(rows));
    const int boxes = std::min(static_cast<int>(limit / (box * stages)), kPortableMaxBoxes);
    // What a block streams: its rows of weights, and x, which comes from the L2 cache.
    constexpr int kItemCost = 16;
    const int64_t cost =
        ceil_div(items, int64_t{info.num_sms}) * (2 * (outputs + kItemCost) + rows);
    if (items == 0 || boxes == 0 || cost > least) continue;
    least = cost;
    best = {.is_general = false,
            .tile_outputs = outputs,
            .num_splits = splits,
            .num_blocks = static_cast<int>(std::min<int64_t>(items, info.num_sms)),
            .stage_boxes = boxes,
            .shared_bytes = uint32_t(boxes) * stages * box};
  }
  return best;
}

PortableKernel select_portable_prompt(const SiteCall& call, const DeviceInfo& info) {
  PortableKernel best;
  if (!has_portable(call, info)) return best;
  const int64_t row_tiles = ceil_div(call.rows, int64_t{kPortableTileRows});
  int64_t least = INT64_MAX;
  for (const int outputs : {256, 128}) {
    const int64_t tiles = row_tiles * num_tiles(call, outputs);
    // In hundredths of the products of 128 x 256: half the tile takes more than half the time.
    const int64_t cost = ceil_div(tiles, int64_t{info.num_sms}) * (outputs == 256 ? 100 : 60);
    if (tiles == 0 || cost >= least) continue;
    least = cost;
    best = {.is_general = false,
            .is_prompt = true,
            .tile_outputs = outputs,
            .num_splits = 1,
            .num_blocks = static_cast<int>(std::min<int64_t>(tiles, info.num_sms)),
            .stage_boxes = 1,
            .shared_bytes = portable_prompt_bytes(outputs)};
  }
  return best;
}

std::ostream& operator<<(std::ostream& out, const PortableKernel& k) {
  if (k.is_general) return out << "general";
  out << (k.is_prompt ? "prompt_portable" : "decode_portable") << " tile=" << k.tile_outputs;
  if (!k.is_prompt) out << " splits=" << k.num_splits << " boxes=" << k.stage_boxes;
  return out << " blocks=" << k.num_blocks << " shared=" << k.shared_bytes;
}

}  // namespace heddle
