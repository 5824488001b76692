#pragma once

#include <span>

#include "heddle/ops/linear_site.h"

#include "ops/linear_site/run/select_kernel.h"

namespace heddle {

/// A call of at most four slices, without adapters; num_outputs: of the whole site. Packed weights
/// are taken for what they are dequantised to.
[[nodiscard]] SiteCall describe(std::span<const LinearSlice> slices, int64_t rows,
                                int64_t num_outputs);

/// Whether rows, which do not overlap, can be loaded 16 bytes at a time.
[[nodiscard]] bool has_vectors(const ConstTensorView& rows);

/// Whether the adapters of a call are one for each row, in tables that can be loaded 16 bytes at a
/// time.
[[nodiscard]] bool have_vectors(const LinearAdapters& adapters, int64_t in_features);

/// Whether the kernels of A x and B h of kDecode take the adapters of a call. Said by tables and
/// batch as a whole: what a slot holds does not matter.
[[nodiscard]] bool fit_decode_kernels(const LinearAdapters& adapters, int64_t in_features,
                                      int64_t rows);

}  // namespace heddle
