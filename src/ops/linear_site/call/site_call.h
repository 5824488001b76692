#pragma once

#include <cstdint>
#include <span>

#include "heddle/ops/linear_site.h"

namespace heddle {

/// Rows and slices of a launch with kDecode, and slices of one with kPrompt.
inline constexpr int64_t kMaxLaunchRows = 128;
inline constexpr int kMaxLaunchSlices = 4;

struct SiteCall {
  int num_slices = 1;
  int64_t rows = 1;  // of the launch
  int64_t in_features = 0;
  int64_t widths[kMaxLaunchSlices] = {};  // outputs of each slice
  int64_t num_outputs = 0;                // of the whole site
  bool fits_tensor_maps = false;          // the weights of all slices
  int max_rank = 0;                       // of the adapters inside; 0: none
};

/// A call of at most four slices, without adapters; num_outputs: of the whole site. Packed weights
/// are taken for what they are dequantised to.
[[nodiscard]] SiteCall describe(std::span<const LinearSlice> slices, int64_t rows,
                                int64_t num_outputs);

/// Whether rows, which do not overlap, can be loaded 16 bytes at a time.
[[nodiscard]] bool has_vectors(const ConstTensorView& rows);

/// Whether the adapters of a call are one for each row, in tables that can be loaded 16 bytes at a
/// time.
[[nodiscard]] bool have_vectors(const LinearAdapters& adapters, int64_t in_features);

}  // namespace heddle
