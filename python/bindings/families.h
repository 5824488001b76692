#pragma once

#include <nanobind/nanobind.h>

// One function per op family, in the file of the same name: it binds the family's operations to names of heddle._core.
namespace heddle::python {

void bind_lora(nanobind::module_& m);
void bind_norm(nanobind::module_& m);

}  // namespace heddle::python
