#pragma once

#include <nanobind/nanobind.h>

// One function per op family, in the file of the same name: it binds the family's operations to names of heddle._core.
namespace heddle::python {

void bind_activation(nanobind::module_& m);
void bind_attention(nanobind::module_& m);
void bind_embedding(nanobind::module_& m);
void bind_kv_cache(nanobind::module_& m);
void bind_linear(nanobind::module_& m);
void bind_lora(nanobind::module_& m);
void bind_mamba(nanobind::module_& m);
void bind_metadata(nanobind::module_& m);
void bind_norm(nanobind::module_& m);
void bind_rope(nanobind::module_& m);
void bind_sampling(nanobind::module_& m);
void bind_speculation(nanobind::module_& m);
void bind_verify(nanobind::module_& m);

}  // namespace heddle::python
