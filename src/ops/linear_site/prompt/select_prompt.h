#pragma once

#include <cstdint>
#include <iosfwd>

#include "heddle/core/device.h"

#include "ops/linear_site/call/site_call.h"

namespace heddle {

/// A launch of the kernel for many rows (prompt/), or with is_general of the one for all. Its shape
/// decides what is loaded when, and not how a row is summed.
struct PromptKernel {
  bool is_general = true;
  int tile_outputs = 0;
  int cluster_size = 1;  // blocks that share the weights of a tile, each with rows of its own
  int group_units = 0;   // as in PromptParams
  int num_blocks = 0;

  friend bool operator==(const PromptKernel&, const PromptKernel&) = default;
  friend std::ostream& operator<<(std::ostream& out, const PromptKernel& kernel);
};

/// The kernel of any number of rows and up to four slices.
[[nodiscard]] PromptKernel select_prompt_kernel(const SiteCall& call, const DeviceInfo& info);

}  // namespace heddle
