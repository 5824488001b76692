#include <optional>
#include <string>
#include <utility>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "heddle/config.h"
#include "heddle/core/device.h"
#include "heddle/core/error.h"

#include "bindings/arrays.h"
#include "bindings/contexts.h"
#include "bindings/direct_call.h"
#include "bindings/families.h"
#include "bindings/scalars.h"

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
  m.def("has_cuda", &has_cuda);
  m.def("num_threads", &num_threads);
  m.def("set_num_threads", &set_num_threads, "n"_a);
  m.def(
      "check_faults",
      [](nb::handle device, uintptr_t stream) {
        const Device place = device_named(device);
        nb::gil_scoped_release unlocked;
        check_faults(place, reinterpret_cast<void*>(stream));
      },
      "device"_a, "stream"_a, nb::sig("def check_faults(device: object, stream: int) -> None"));
  m.def(
      "poll_faults",
      [](nb::handle device, uintptr_t stream) -> std::optional<std::string> {
        const Device place = device_named(device);
        std::optional<Fault> fault;
        {
          const nb::gil_scoped_release unlocked;  // check_faults() of another thread may hold it up
          fault = poll_faults(place, reinterpret_cast<void*>(stream));
        }
        return fault ? std::optional(fault->text()) : std::nullopt;
      },
      "device"_a, "stream"_a,
      nb::sig("def poll_faults(device: object, stream: int) -> str | None"));

  m.def(
      "place_of_call",
      [](const nb::args& arrays) {
        BorrowedArrays borrowed;
        for (const nb::handle array : arrays) (void)borrowed.borrow("array", array, Access::kRead);
        return std::pair(name_of(borrowed.device()),
                         reinterpret_cast<uintptr_t>(borrowed.stream()));
      },
      nb::sig("def place_of_call(*arrays: object) -> tuple[str, int]"),
      "The device and the stream that a call with these arrays runs on.");

  m.def(
      "check_output",
      [](const char* name, nb::handle array) {
        BorrowedArrays borrowed;
        (void)borrowed.borrow(name, array, Access::kWrite);
      },
      "name"_a, "array"_a, nb::sig("def check_output(name: str, array: object) -> None"),
      "Raises what an operation would that shall write to the array, whatever its shape.");

  m.def("call_directly", &call_directly, "function"_a, "implementation"_a);
  m.def("watch_tracing", &watch_tracing, "names"_a, "flag"_a);

  bind_families(m);
}

}  // namespace heddle::python
