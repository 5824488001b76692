#include "model/adapters/own_matrix.h"

#include <algorithm>
#include <span>
#include <vector>

#include "heddle/core/dispatch.h"

namespace heddle::model {
namespace {

constexpr int64_t kRoundedRows = 128;  // that are rounded at a time

WeightType weight_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return WeightType::kF16;
    case DType::kBFloat16: return WeightType::kBF16;
    default: return WeightType::kF32;
  }
}

OwnMatrix packed_matrix(const ExecContext& ctx, const StoredValues& stored) {
  const WeightType type = weight_type(stored.dtype);
  const size_t size = packed_bytes(type, stored.rows, stored.columns);
  OwnMatrix own{.memory = allocate_zeroed(ctx.device, size, HostPages::kHuge)};
  pack_rows(ctx, {own.memory.get(), size}, type, stored.rows, stored.columns, 0, stored.rows,
            stored.bytes());
  own.matrix = Matrix(PackedWeight{type, stored.rows, stored.columns, own.memory.get()});
  return own;
}

}  // namespace

OwnMatrix own_matrix(const ExecContext& ctx, const StoredValues& stored, DType activations) {
  if (ctx.device.type == DeviceType::kCpu) return packed_matrix(ctx, stored);
  const size_t row_bytes = static_cast<size_t>(stored.columns) * size_of(activations);
  OwnMatrix own{.memory =
                    allocate_zeroed(ctx.device, static_cast<size_t>(stored.rows) * row_bytes)};
  dispatch_dtype<half, bfloat16>(activations, "an adapter", [&]<class T>() {
    std::vector<T> rounded;
    for (int64_t first = 0; first < stored.rows; first += kRoundedRows) {
      rounded.clear();
      const int64_t count = std::min(kRoundedRows, stored.rows - first);
      for (const float value : stored.narrow(first, count).floats()) {
        rounded.push_back(from_float<T>(value));
      }
      copy_from_host(ctx, own.memory.get() + static_cast<size_t>(first) * row_bytes,
                     std::as_bytes(std::span(rounded)));
    }
  });
  own.matrix = Matrix(
      ConstTensorView(own.memory.get(), activations, ctx.device, {stored.rows, stored.columns}));
  return own;
}

int64_t own_matrix_bytes(const StoredValues& stored, std::optional<DType> rounded_to) {
  if (rounded_to) return stored.num_elements() * static_cast<int64_t>(size_of(*rounded_to));
  return static_cast<int64_t>(packed_bytes(weight_type(stored.dtype), stored.rows, stored.columns));
}

}  // namespace heddle::model
