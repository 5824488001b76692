#include "heddle/ops/embedding.h"

#include <cstring>

#include "cuda/copies/host_copies.h"

#include "heddle/core/check.h"
#include "heddle/core/validate.h"

#include "core/check_kernels.h"
#include "core/scoped_operation.h"
#include "cpu/validate_indices.h"
#include "ops/embedding/embedding_kernels.h"

namespace heddle {
namespace {

constexpr int64_t kElementsPerChunk = 16384;  // some microseconds of work

int64_t token_at(const ConstTensorView& token_ids, int64_t t) {
  const int64_t at = t * token_ids.stride(0);
  return token_ids.dtype() == DType::kInt32 ? int64_t{token_ids.data<int32_t>()[at]}
                                            : token_ids.data<int64_t>()[at];
}

std::byte* row_of(const TensorView& t, int64_t row) {
  return t.raw() + row * t.stride(0) * int64_t(size_of(t.dtype()));
}

const std::byte* row_of(const ConstTensorView& t, int64_t row) {
  return t.raw() + row * t.stride(0) * int64_t(size_of(t.dtype()));
}

void copy_row(std::byte* y, DType y_dtype, const ConstTensorView& table, int64_t token) {
  const int64_t width = table.size(1);
  if (token < 0 || token >= table.size(0)) {
    std::memset(y, 0, size_t(width) * size_of(y_dtype));
  } else if (y_dtype == table.dtype()) {
    std::memcpy(y, row_of(table, token), size_t(width) * size_of(y_dtype));
  } else {
    cpu::embedding::widen_row(reinterpret_cast<float*>(y), row_of(table, token), table.dtype(),
                              width);
  }
}

}  // namespace

void embedding(const ExecContext& ctx, TensorView y, ConstTensorView token_ids,
               ConstTensorView table) {
  check_has_kernels(ctx, "embedding");
  check_device(ctx, {{"y", y}, {"token_ids", token_ids}, {"table", table}});
  Dim tokens("num_tokens"), vocab("vocab_size"), width("width");
  check_shape("token_ids", token_ids, {&tokens});
  check_shape("table", table, {&vocab, &width});
  check_shape("y", y, {&tokens, &width});
  check_dtype("token_ids", token_ids, {DType::kInt32, DType::kInt64});
  check_dtype("table", table, {DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  HEDDLE_CHECK(y.dtype() == DType::kFloat32 || y.dtype() == table.dtype(), "y is ", y.dtype(),
               ", expected f32 or the table's ", table.dtype());
  check_unit_stride("table", table);
  check_unit_stride("y", y);
  if (validating()) {
    check_on_host(
        ctx, [&](auto& host) { return host(token_ids); },
        [&](const ConstTensorView& ids) {
          cpu::check_indices("token_ids", ids, 0, vocab.value(), "vocab_size");
        });
  }
  if (y.num_elements() == 0) return;
  if (ctx.device.type == DeviceType::kCuda) {
    const ScopedOperation operation("embedding");
    if constexpr (kWithCuda) cuda::embedding::run(ctx, y, token_ids, table);
    return;
  }

  const int64_t grain = 1 + kElementsPerChunk / width.value();
  parallel_for(ctx, tokens.value(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      copy_row(row_of(y, t), y.dtype(), table, token_at(token_ids, t));
    }
  });
}

}  // namespace heddle
