#pragma once

#include <cstdint>
#include <span>

#include <nanobind/nanobind.h>

#include "heddle/core/device.h"
#include "heddle/core/dtype.h"

namespace heddle::python {

/// A new array of the framework of `like`, which lies on `device`, there and without gaps: for
/// results that a call returns. dtype is bool, i32 or i64.
[[nodiscard]] nanobind::object new_array(nanobind::handle like, Device device,
                                         std::span<const int64_t> shape, DType dtype);

}  // namespace heddle::python
