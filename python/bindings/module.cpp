#include <nanobind/nanobind.h>

#include "heddle/config.h"
#include "heddle/core/error.h"

#include "contexts.h"
#include "families.h"

namespace heddle::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

PyObject* exception_type(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return PyExc_ValueError;
    case ErrorCode::kUnsupported: return PyExc_NotImplementedError;
    case ErrorCode::kOutOfMemory: return PyExc_MemoryError;
    case ErrorCode::kCuda: return PyExc_RuntimeError;
  }
  return PyExc_RuntimeError;
}

void raise_heddle_error(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    PyErr_SetString(exception_type(error.code()), error.what());
  }
}

}  // namespace

NB_MODULE(_core, m) {
  nb::register_exception_translator(raise_heddle_error);
  m.attr("VERSION") = kVersion;  // the stub leaves out names with two underscores
  m.def("has_cuda", [] { return kWithCuda; });
  m.def("num_threads", &num_threads);
  m.def("set_num_threads", &set_num_threads, "n"_a);

  bind_linear(m);  // first: defines PackedWeight, which others take
  bind_activation(m);
  bind_attention(m);
  bind_embedding(m);
  bind_kv_cache(m);
  bind_lora(m);
  bind_mamba(m);
  bind_metadata(m);
  bind_norm(m);
  bind_rope(m);
  bind_sampling(m);
  bind_speculation(m);
  bind_verify(m);
}

}  // namespace heddle::python
