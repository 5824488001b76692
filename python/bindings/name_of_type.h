#pragma once

#include <nanobind/nanobind.h>

namespace heddle::python {

/// What an object is, for errors: "int".
[[nodiscard]] inline nanobind::str name_of_type(nanobind::handle object) {
  return nanobind::str(object.type().attr("__name__"));
}

}  // namespace heddle::python
