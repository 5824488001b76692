#include <algorithm>

#include "heddle/core/dtype.h"

#include "core/kernel_log.h"
#include "ops/linear/unpack/unpack_kernels.h"
#include "ops/linear_site/call/site_slices.h"
#include "ops/linear_site/packed/packed_division.h"
#include "ops/linear_site/packed/packed_params.h"
#include "ops/linear_site/packed/run_packed.h"

namespace heddle::cuda::linear_site {
namespace {

/// Slices from the first one on that one launch takes, or that have dense weights.
size_t num_alike(std::span<const LinearSlice> slices) {
  size_t n = 1;
  while (n < slices.size() && slices[n].packed.type == slices[0].packed.type &&
         is_packed(slices[n]) == is_packed(slices[0])) {
    ++n;
  }
  return is_packed(slices[0]) ? std::min(n, size_t{kMaxPackedSlices}) : n;
}

template <class T>
void run_launch(const ExecContext& ctx, std::span<const LinearSlice> slices,
                const ConstTensorView& x, const XSignal* signal) {
  PackedParams p{.slices = {},
                 .x = x.raw(),
                 .x_stride = x.stride(0),
                 .num_slices = static_cast<int32_t>(slices.size()),
                 .num_rows = static_cast<int32_t>(x.size(0)),
                 .in_features = static_cast<int32_t>(x.size(1)),
                 .cluster_size = 1,
                 .y_dtype = slices[0].y.dtype(),
                 .signal = signal};
  for (size_t s = 0; s < slices.size(); ++s) {
    p.slices[s] = {.y = slices[s].y.raw(),
                   .y_stride = slices[s].y.stride(0),
                   .bias = slices[s].bias.raw(),
                   .weight = slices[s].packed.data,
                   .width = static_cast<int32_t>(slices[s].y.size(1)),
                   .end_tile = 0};
  }
  const WeightType type = slices[0].packed.type;
  log_choice("linear_site", type);
  if (ctx.info.compute_capability == 90 && has_packed_tiles(type)) {
    return launch_packed_sm90<T>(ctx, p, type);
  }
  launch_packed<T>(ctx, p, type);
}

/// Outputs whose weights are dequantised at once: they stay in the L2 cache.
int64_t dequantized_outputs(int64_t in_features, int64_t out_features) {
  constexpr int64_t kElements = int64_t{16} << 20, kUnit = 256;
  const int64_t units = kElements / (kUnit * std::max<int64_t>(in_features, 1));
  return std::min(std::max<int64_t>(units, 1) * kUnit, out_features);
}

}  // namespace

template <class T>
void run_packed(const ExecContext& ctx, std::span<const LinearSlice> slices,
                const ConstTensorView& x, const DenseProducts& dense, const XSignal* signal) {
  while (!slices.empty()) {
    const auto some = slices.first(num_alike(slices));
    if (is_packed(some[0])) {
      run_launch<T>(ctx, some, x, signal);
    } else {
      dense(some);
    }
    slices = slices.subspan(some.size());
    signal = nullptr;
  }
}

template <class T>
void run_dequantized(const ExecContext& ctx, std::span<const LinearSlice> slices,
                     const ConstTensorView& x, const SliceProducts& dense, Workspace& workspace) {
  const Workspace::Scope scope(workspace);
  const int64_t in = x.size(1), most = dequantized_outputs(in, sum_out_features(slices));
  auto* const memory = reinterpret_cast<std::byte*>(workspace.take<T>(size_t(most * in)).data());
  for (size_t s = 0; s < slices.size(); ++s) {
    const LinearSlice& slice = slices[s];
    if (slice.y.size(1) == 0) continue;
    if (!is_packed(slice)) {
      dense(slice, s, 0);
      continue;
    }
    for (int64_t first = 0; first < slice.y.size(1); first += most) {
      const int64_t num = std::min(most, slice.y.size(1) - first);
      const TensorView weight(memory, x.dtype(), ctx.device, {num, in});
      linear::dequantize_rows(ctx, weight, slice.packed, first);
      LinearSlice some{.y = slice.y.narrow(1, first, num), .weight = weight};
      if (slice.bias) some.bias = slice.bias.narrow(0, first, num);
      dense(some, s, first);
    }
  }
}

size_t dequantized_bytes(int64_t in_features, int64_t out_features) {
  return Workspace::bytes_for<half>(
      size_t(dequantized_outputs(in_features, out_features) * in_features));
}

template void run_packed<half>(const ExecContext&, std::span<const LinearSlice>,
                               const ConstTensorView&, const DenseProducts&, const XSignal*);
template void run_packed<bfloat16>(const ExecContext&, std::span<const LinearSlice>,
                                   const ConstTensorView&, const DenseProducts&, const XSignal*);
template void run_dequantized<half>(const ExecContext&, std::span<const LinearSlice>,
                                    const ConstTensorView&, const SliceProducts&, Workspace&);
template void run_dequantized<bfloat16>(const ExecContext&, std::span<const LinearSlice>,
                                        const ConstTensorView&, const SliceProducts&, Workspace&);

}  // namespace heddle::cuda::linear_site
