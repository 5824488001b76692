#include "bindings/direct_call.h"

#include <unordered_map>

namespace heddle::python {

#if PY_VERSION_HEX >= 0x030C0000
namespace {

/// What a function does without us: runs its code. One value for all of them.
vectorcallfunc run_code = nullptr;
PyObject* traced_names = nullptr;  // null: nothing traces
PyObject* traced_flag = nullptr;

std::unordered_map<PyObject*, PyObject*>& implementations() {
  static auto& known = *new std::unordered_map<PyObject*, PyObject*>();
  return known;
}

bool is_tracing() {
  return traced_names != nullptr && PyDict_GetItemWithError(traced_names, traced_flag) != Py_False;
}

PyObject* call(PyObject* function, PyObject* const* arguments, size_t num_arguments,
               PyObject* keywords) {
  if (is_tracing()) return run_code(function, arguments, num_arguments, keywords);
  PyObject* implementation = implementations().find(function)->second;
  return PyObject_Vectorcall(implementation, arguments, num_arguments, keywords);
}

}  // namespace

void call_directly(nanobind::handle function, nanobind::handle implementation) {
  if (PyFunction_Check(function.ptr()) == 0) nanobind::raise_type_error("expected a function");
  if (!implementations().emplace(function.ptr(), implementation.ptr()).second) return;
  function.inc_ref();
  implementation.inc_ref();
  run_code = PyVectorcall_Function(function.ptr());
  PyFunction_SetVectorcall(reinterpret_cast<PyFunctionObject*>(function.ptr()), &call);
}

void watch_tracing(Names names, nanobind::str flag) {
  traced_names = names.release().ptr();
  traced_flag = flag.release().ptr();
  PyUnicode_InternInPlace(&traced_flag);
}
#else
void call_directly(nanobind::handle, nanobind::handle) {}
void watch_tracing(Names, nanobind::str) {}
#endif

}  // namespace heddle::python
