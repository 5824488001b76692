#include "heddle/ops/linear_site.h"

#include <algorithm>
#include <array>

#include "heddle/core/check.h"

#include "core/check_kernels.h"
#include "core/scoped_operation.h"
#include "ops/linear_site/site_kernels.h"
#include "ops/linear_site/site_slices.h"
#include "ops/lora_device/checks/check_call.h"
#include "ops/lora_device/checks/slice_name.h"

namespace heddle {
namespace {

constexpr int64_t kMaxCudaRows = 65536;
constexpr uintptr_t kPackedAlignment = 64;  // of PackedWeight::data

/// The weight of a slice, which has one of two kinds.
void check_weight(const ExecContext& ctx, const LinearSlice& slice, size_t index, DType x_dtype,
                  Dim& out, Dim& in) {
  const SliceName weight(index, ".weight"), packed(index, ".packed");
  if (!is_packed(slice)) {
    check_shape(weight.c_str(), slice.weight, {&out, &in});
    check_dtype(weight.c_str(), slice.weight, {x_dtype});
    check_unit_stride(weight.c_str(), slice.weight);
    return check_device(ctx, {{weight.c_str(), slice.weight}});
  }
  const PackedWeight& w = slice.packed;
  HEDDLE_CHECK(!slice.weight, weight.c_str(), " and ", packed.c_str(), " are both given");
  HEDDLE_CHECK(block_size(w.type) > 1, packed.c_str(), " is ", w.type,
               ", expected quantised blocks");
  HEDDLE_CHECK(w.in_features == in.value(), packed.c_str(), ".in_features is ", w.in_features,
               ", expected in_features = ", in.value());
  HEDDLE_CHECK(w.data != nullptr || packed_bytes(w.type, w.out_features, w.in_features) == 0,
               packed.c_str(), " [", w.out_features, ", ", w.in_features, "] has no data");
  HEDDLE_CHECK(reinterpret_cast<uintptr_t>(w.data) % kPackedAlignment == 0, packed.c_str(),
               ".data is not a multiple of ", kPackedAlignment);
  out.bind(w.out_features);
}

void check_slice(const ExecContext& ctx, const LinearSlice& slice, size_t index, DType x_dtype,
                 DType y_dtype, Dim& tokens, Dim& in) {
  const SliceName y(index, ".y"), bias(index, ".bias");
  Dim out("out_features");
  check_weight(ctx, slice, index, x_dtype, out, in);
  check_shape(y.c_str(), slice.y, {&tokens, &out});
  check_dtype(y.c_str(), slice.y, {x_dtype, DType::kFloat32});
  check_dtype(y.c_str(), slice.y, {y_dtype});
  check_unit_stride(y.c_str(), slice.y);
  check_device(ctx, {{y.c_str(), slice.y}});
  if (!slice.bias) return;
  check_shape(bias.c_str(), slice.bias, {&out});
  check_dtype(bias.c_str(), slice.bias, {x_dtype});
  check_unit_stride(bias.c_str(), slice.bias);
  check_device(ctx, {{bias.c_str(), slice.bias}});
}

}  // namespace

void linear_site(const ExecContext& ctx, std::span<const LinearSlice> slices, ConstTensorView x,
                 LinearPath path, const LinearAdapters* adapters) {
  check_has_kernels(ctx, "linear_site");
  HEDDLE_CHECK(path == LinearPath::kDecode || path == LinearPath::kPrompt, "linear_site: path is ",
               int(path), ", expected kDecode = ", int(LinearPath::kDecode),
               " or kPrompt = ", int(LinearPath::kPrompt));
  HEDDLE_CHECK(!slices.empty() && slices.size() <= size_t{kMaxSiteSlices},
               "linear_site: ", slices.size(), " slices, expected 1 to ", kMaxSiteSlices);
  Dim tokens("num_tokens"), in("in_features");
  check_device(ctx, {{"x", x}});
  check_shape("x", x, {&tokens, &in});
  check_dtype("x", x, {DType::kFloat16, DType::kBFloat16});
  check_unit_stride("x", x);
  for (size_t s = 0; s < slices.size(); ++s) {
    check_slice(ctx, slices[s], s, x.dtype(), slices[0].y.dtype(), tokens, in);
  }
  if (adapters != nullptr) {
    const LoraSlices lora(slices);
    check_apply(ctx, lora.span(), x, adapters->a, adapters->b, adapters->batch);
    HEDDLE_CHECK(adapters->a.dtype == x.dtype(), "a is ", adapters->a.dtype, ", but x is ",
                 x.dtype());
    HEDDLE_CHECK(adapters->b.dtype == x.dtype(), "b is ", adapters->b.dtype, ", but x is ",
                 x.dtype());
    if (std::min(adapters->a.max_rank, adapters->b.max_rank) == 0) adapters = nullptr;
  }
  if (tokens.value() == 0) return;
  if (ctx.device.type == DeviceType::kCpu) {
    return cpu::linear_site::run(ctx, slices, x, adapters);
  }
  HEDDLE_CHECK(tokens.value() <= kMaxCudaRows, "x.size(0) is ", tokens.value(),
               ", linear_site takes at most ", kMaxCudaRows, " rows on ", ctx.device);
  const ScopedOperation operation("linear_site");
  if constexpr (kWithCuda) cuda::linear_site::run(ctx, slices, x, path, adapters);
}

size_t linear_site_workspace_bytes(Device device, int64_t num_tokens, int64_t in_features,
                                   int64_t out_features, int num_slices, int max_rank,
                                   int64_t max_pairs) {
  size_t bytes = lora_apply_workspace_bytes(device, num_tokens, in_features, num_slices, max_rank);
  if (max_pairs > 0) {
    bytes = std::max(bytes, lora_pairs_workspace_bytes(device, num_tokens, in_features, 0,
                                                       num_slices, max_rank));
  }
  if (device.type == DeviceType::kCpu) {
    return bytes +
           cpu::linear_site::workspace_bytes(num_tokens, in_features, out_features, num_slices);
  }
  if constexpr (kWithCuda) {
    return bytes + cuda::linear_site::workspace_bytes(num_tokens, in_features, out_features,
                                                      num_slices, max_rank);
  } else {
    throw_error(ErrorCode::kUnsupported, "linear_site: built without CUDA");
  }
}

}  // namespace heddle
