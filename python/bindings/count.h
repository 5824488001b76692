#pragma once

#include "heddle/core/count.h"

#include "bindings/call.h"

namespace heddle::python {

/// An int, or an array of one element that lies on the device; None where the count may be left
/// out.
[[nodiscard]] inline Count count_of(Call& call, const char* name, nb::handle count) {
  if (count.is_none()) return {};
  // NumPy's integers count as ints; arrays that could be taken for an index stay arrays.
  if (!PyLong_Check(count.ptr()) &&
      (!PyIndex_Check(count.ptr()) || nb::hasattr(count, "__dlpack__"))) {
    return call.in(name, count);
  }
  const Py_ssize_t value = PyNumber_AsSsize_t(count.ptr(), PyExc_OverflowError);
  if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return int64_t{value};
}

}  // namespace heddle::python
