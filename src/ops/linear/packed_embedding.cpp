#include <algorithm>

#include "cuda/copies/host_copies.h"

#include "heddle/core/check.h"
#include "heddle/core/dispatch.h"
#include "heddle/core/validate.h"
#include "heddle/ops/linear.h"

#include "core/check_kernels.h"
#include "core/scoped_operation.h"
#include "cpu/validate_indices.h"
#include "ops/linear/format/packed_block.h"
#include "ops/linear/format/packed_layout.h"
#include "ops/linear/unpack/unpack_kernels.h"

namespace heddle {
namespace {

/// row[in_features] = one row of a packed weight, rounded to T.
template <class T>
void unpack_row(const PackedWeight& weight, int64_t output, T* row) {
  constexpr int kMaxBlock = 256;
  float values[kMaxBlock];
  const int block_size = block_format(weight.type).block_size;
  const int lane = static_cast<int>(output % PackedLayout::kGroup);
  const std::byte* packed =
      weight.data + output / PackedLayout::kGroup * group_bytes(weight.type, weight.in_features);
  for (int64_t k = 0; k < weight.in_features; k += block_size) {
    if (is_dense(weight.type)) {
      values[0] = dense_value(weight.type, packed + lane * block_format(weight.type).stored_bytes);
    } else {
      block_values(weight.type, read_packed_block(weight.type, lane, packed), values);
    }
    std::transform(values, values + block_size, row + k, [](float v) { return from_float<T>(v); });
    packed += PackedLayout(weight.type).block_bytes;
  }
}

int64_t read_id(const ConstTensorView& ids, int64_t i) {
  const int64_t at = i * ids.stride(0);
  return ids.dtype() == DType::kInt64 ? ids.data<int64_t>()[at] : ids.data<int32_t>()[at];
}

template <class T>
void unpack_rows(const ExecContext& ctx, const TensorView& y, const ConstTensorView& token_ids,
                 const PackedWeight& weight) {
  parallel_for(ctx, y.size(0), 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      T* row = y.data<T>() + t * y.stride(0);
      const int64_t id = read_id(token_ids, t);
      if (id < 0 || id >= weight.out_features) {
        std::fill_n(row, weight.in_features, T{});
      } else {
        unpack_row(weight, id, row);
      }
    }
  });
}

}  // namespace

void embedding(const ExecContext& ctx, TensorView y, ConstTensorView token_ids,
               const PackedWeight& weight) {
  check_has_kernels(ctx, "embedding");
  const size_t bytes = packed_bytes(weight.type, weight.out_features, weight.in_features);
  Dim tokens("num_tokens"), width("in_features of the weight", weight.in_features);
  check_shape("y", y, {&tokens, &width});
  check_shape("token_ids", token_ids, {&tokens});
  check_dtype("y", y, {DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  check_dtype("token_ids", token_ids, {DType::kInt32, DType::kInt64});
  check_unit_stride("y", y);
  check_device(ctx, {{"y", y}, {"token_ids", token_ids}});
  HEDDLE_CHECK(weight.data != nullptr || bytes == 0, "embedding: the weight [", weight.out_features,
               ", ", weight.in_features, "] has no data");
  if (validating()) {
    check_on_host(
        ctx, [&](auto& host) { return host(token_ids); },
        [&](const ConstTensorView& ids) {
          cpu::check_indices("token_ids", ids, 0, weight.out_features, "out_features");
        });
  }
  if (y.num_elements() == 0) return;
  if (ctx.device.type == DeviceType::kCuda) {
    const ScopedOperation operation("embedding");
    if constexpr (kWithCuda) cuda::linear::embedding(ctx, y, token_ids, weight);
    return;
  }
  dispatch_dtype<float, half, bfloat16>(
      y.dtype(), "embedding", [&]<class T>() { unpack_rows<T>(ctx, y, token_ids, weight); });
}

}  // namespace heddle
