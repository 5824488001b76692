#pragma once

#include <cstdint>
#include <span>

#include "heddle/core/check.h"
#include "heddle/ops/linear.h"

#include "capi/convert.h"

namespace heddle::capi {

[[nodiscard]] WeightType type_of(heddle_weight_type type);

/// A vector of T without gaps as a span.
template <class T, class Byte>
auto span_of(const char* name, const BasicTensorView<Byte>& t) {
  Dim extent("its extent");
  check_shape(name, t, {&extent});
  check_dtype(name, t, {kDType<T>});
  check_unit_stride(name, t);
  return std::span(t.template data<T>(), size_t(extent.value()));
}

inline std::span<const std::byte> bytes_of(const char* name, const ConstTensorView& t) {
  return std::as_bytes(span_of<uint8_t>(name, t));
}
inline std::span<std::byte> bytes_of(const char* name, const TensorView& t) {
  return std::as_writable_bytes(span_of<uint8_t>(name, t));
}

/// A packed weight, on the context's device. `name` is that of the argument, for errors.
[[nodiscard]] PackedWeight weight_of(const ExecContext& ctx, const char* name,
                                     const heddle_packed_weight* weight);

}  // namespace heddle::capi
