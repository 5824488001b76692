#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "heddle/core/workspace.h"
#include "heddle/ops/linear_site.h"

#include "ops/linear_site/decode/exchange.h"

namespace heddle::cuda::linear_site {

/// The products of slices with dense weights.
using DenseProducts = std::function<void(std::span<const LinearSlice>)>;
/// The products of outputs of one slice with dense weights: the slice's index, the first output.
using SliceProducts = std::function<void(const LinearSlice&, size_t slice, int64_t first)>;

/// The products of a site with packed weights among its slices: neighbours of one format in one
/// launch, neighbours with dense weights by `dense`. `signal`: of A x, where that is the kernel in
/// front.
template <class T>
void run_packed(const ExecContext& ctx, std::span<const LinearSlice> slices,
                const ConstTensorView& x, const DenseProducts& dense, const XSignal* signal);

/// For many rows: some outputs of a packed weight at a time are rounded to x's dtype, in
/// the workspace, and multiplied by `dense`, whose first kernel sees these weights even before it
/// waits for the previous kernel.
template <class T>
void run_dequantized(const ExecContext& ctx, std::span<const LinearSlice> slices,
                     const ConstTensorView& x, const SliceProducts& dense, Workspace& workspace);
/// Of a site with so many outputs.
[[nodiscard]] size_t dequantized_bytes(int64_t in_features, int64_t out_features);

}  // namespace heddle::cuda::linear_site
