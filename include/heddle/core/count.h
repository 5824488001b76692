#pragma once

#include <cstdint>

#include "heddle/core/check.h"
#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"

namespace heddle {

/// A number of requests or tokens: one that the host knows, or one element (i32|i64, rank 0 or 1)
/// on the context's device, which the op reads there, so that a captured graph replays with another
/// value. A default-made count, and one of an absent tensor, is not given, and the op says what
/// then holds. Kernel-ready.
class Count {
 public:
  Count() = default;
  Count(int64_t value) : value_(value), given_(true) {}  // NOLINT(google-explicit-constructor)
  Count(ConstTensorView on_device)                       // NOLINT(google-explicit-constructor)
      : on_device_(on_device), given_(static_cast<bool>(on_device)) {}
  Count(TensorView on_device)  // NOLINT(google-explicit-constructor)
      : Count(ConstTensorView(on_device)) {}

  [[nodiscard]] bool given() const { return given_; }
  [[nodiscard]] bool on_device() const { return static_cast<bool>(on_device_); }
  [[nodiscard]] int64_t value() const { return value_; }  // of the host; 0 when on the device
  [[nodiscard]] const ConstTensorView& tensor() const { return on_device_; }

 private:
  ConstTensorView on_device_;
  int64_t value_ = 0;
  bool given_ = false;
};

/// A host value must be in [0, limit]; a device value is one readable element (its kernel clamps it
/// to that range).
inline void check_count(const char* count, const ExecContext& ctx, const Count& n, int64_t limit) {
  if (n.on_device()) {
    const ConstTensorView& t = n.tensor();
    HEDDLE_CHECK(t.rank() <= 1 && t.num_elements() == 1, count, " has rank ", t.rank(), " and ",
                 t.num_elements(), " elements, expected one element");
    check_dtype(count, t, {DType::kInt32, DType::kInt64});
    check_device(ctx, {{count, t}});
  } else {
    HEDDLE_CHECK(n.value() >= 0 && n.value() <= limit, count, " is ", n.value(), ", expected 0 to ",
                 limit);
  }
}

}  // namespace heddle
