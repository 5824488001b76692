#pragma once

#include "core/device_bytes.h"
#include "model/adapters/adapter.h"
#include "model/weights/matrix.h"

namespace heddle::model {

/// A matrix with its memory.
struct OwnMatrix {
  DeviceBytes memory{};
  Matrix matrix{};
};

/// A stored matrix on the context's device, as products read it: packed in its own type on the CPU,
/// on a GPU as rows that are rounded to the activations' dtype.
[[nodiscard]] OwnMatrix own_matrix(const ExecContext& ctx, const StoredValues& stored,
                                   DType activations);
/// Bytes that it takes. rounded_to: the activations' dtype on a GPU, else absent.
[[nodiscard]] int64_t own_matrix_bytes(const StoredValues& stored, std::optional<DType> rounded_to);

}  // namespace heddle::model
