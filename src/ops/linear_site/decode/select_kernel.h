#pragma once

#include <cstdint>
#include <iosfwd>

#include "heddle/core/device.h"

#include "ops/linear_site/call/site_call.h"

namespace heddle {

/// A launch of the kernel for compute capability 9.0 (decode/), or with is_general of the one for
/// all.
struct SiteKernel {
  bool is_general = true;
  int tile_outputs = 0;
  int cluster_size = 1;  // blocks that share the features of a tile: of the site's shape alone
  int groups = 1;        // of 64 rows
  int num_blocks = 0;
  int stage_boxes = 0, weight_stages = 0, x_stages = 0, max_loading = 0;
  uint32_t shared_bytes = 0;

  friend bool operator==(const SiteKernel&, const SiteKernel&) = default;
  friend std::ostream& operator<<(std::ostream& out, const SiteKernel& kernel);
};

/// The kernel of up to kMaxLaunchRows rows and four slices.
[[nodiscard]] SiteKernel select_site_kernel(const SiteCall& call, const DeviceInfo& info);

/// Blocks that share the features of a tile. A small site has few tiles, and each block of the chip
/// should stream as many bytes.
[[nodiscard]] constexpr int site_cluster_size(int64_t num_outputs) {
  return num_outputs < 2048 ? 4 : num_outputs < 12288 ? 2 : 1;
}

}  // namespace heddle
