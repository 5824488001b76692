#pragma once

#include <nanobind/nanobind.h>

namespace heddle::python {

/// Binds the operations of all families to names of heddle._core: calls the function bind_X of
/// every src/ops/<family>/X_python.cpp. CMake writes its source from the list of these files.
void bind_families(nanobind::module_& m);

}  // namespace heddle::python
