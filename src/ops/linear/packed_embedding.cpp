#include <algorithm>

#include "heddle/core/check.h"
#include "heddle/ops/linear.h"

#include "cpu/validate_indices.h"
#include "ops/linear/packed_block.h"
#include "ops/linear/packed_layout.h"

namespace heddle {
namespace {

/// row[in_features] = one row of a packed weight.
void unpack_row(const PackedWeight& weight, int64_t output, float* row) {
  const int block_size = block_format(weight.type).block_size;
  const int lane = static_cast<int>(output % PackedLayout::kGroup);
  const std::byte* packed =
      weight.data + output / PackedLayout::kGroup * group_bytes(weight.type, weight.in_features);
  for (int64_t k = 0; k < weight.in_features; k += block_size) {
    if (is_dense(weight.type)) {
      row[k] = dense_value(weight.type, packed + lane * block_format(weight.type).stored_bytes);
    } else {
      block_values(weight.type, read_packed_block(weight.type, lane, packed), row + k);
    }
    packed += PackedLayout(weight.type).block_bytes;
  }
}

int64_t read_id(const ConstTensorView& ids, int64_t i) {
  const int64_t at = i * ids.stride(0);
  return ids.dtype() == DType::kInt64 ? ids.data<int64_t>()[at] : ids.data<int32_t>()[at];
}

}  // namespace

void embedding(const ExecContext& ctx, TensorView y, ConstTensorView token_ids,
               const PackedWeight& weight) {
  check_cpu(ctx, "embedding");
  const size_t bytes = packed_bytes(weight.type, weight.out_features, weight.in_features);
  Dim tokens("num_tokens"), width("in_features of the weight", weight.in_features);
  check_shape("y", y, {&tokens, &width});
  check_shape("token_ids", token_ids, {&tokens});
  check_dtype("y", y, {DType::kFloat32});
  check_dtype("token_ids", token_ids, {DType::kInt32, DType::kInt64});
  check_unit_stride("y", y);
  check_device(ctx, {{"y", y}, {"token_ids", token_ids}});
  HEDDLE_CHECK(weight.data != nullptr || bytes == 0, "embedding: the weight [", weight.out_features,
               ", ", weight.in_features, "] has no data");
  if (validating()) {
    cpu::check_indices("token_ids", token_ids, 0, weight.out_features, "out_features");
  }
  parallel_for(ctx, tokens.value(), 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* row = y.data<float>() + t * y.stride(0);
      const int64_t id = read_id(token_ids, t);
      if (id < 0 || id >= weight.out_features) {
        std::fill_n(row, weight.in_features, 0.0f);
      } else {
        unpack_row(weight, id, row);
      }
    }
  });
}

}  // namespace heddle
