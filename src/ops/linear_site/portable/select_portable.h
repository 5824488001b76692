#pragma once

#include <cstdint>
#include <iosfwd>

#include "heddle/core/device.h"

#include "ops/linear_site/call/site_call.h"

namespace heddle {

/// A launch of the kernels for every chip from 8.0 on (portable/), or with is_general of the one
/// for any address.
struct PortableKernel {
  bool is_general = true;
  bool is_prompt = false;
  int tile_outputs = 0;
  int num_splits = 1;  // blocks that share the features of a tile: of the site's shape alone
  int num_blocks = 0;
  int stage_boxes = 0;  // of 64 features, of few rows
  uint32_t shared_bytes = 0;

  friend bool operator==(const PortableKernel&, const PortableKernel&) = default;
  friend std::ostream& operator<<(std::ostream& out, const PortableKernel& kernel);
};

/// The kernel of up to kMaxLaunchRows rows and four slices; is_general on 9.0, which has another.
[[nodiscard]] PortableKernel select_portable_decode(const SiteCall& call, const DeviceInfo& info);
/// That of any number of rows.
[[nodiscard]] PortableKernel select_portable_prompt(const SiteCall& call, const DeviceInfo& info);

/// Blocks that share the features of a tile.
[[nodiscard]] int portable_splits(int64_t num_outputs, int64_t in_features);

/// Shared memory that a block can have on a chip.
[[nodiscard]] uint32_t shared_bytes_of_block(const DeviceInfo& info);

/// Workspace of a site of so many outputs at most: parts of sums, and a counter for each tile.
[[nodiscard]] int64_t portable_parts(int64_t rows, int64_t num_outputs);  // of 16 bytes
inline constexpr int64_t kPortableCounters = 512;

}  // namespace heddle
