#include "bindings/direct_call.h"

#include <dlfcn.h>
#include <unordered_map>

namespace heddle::python {

namespace {

/// Functions of Python that its stable interface leaves out: looked for in the Python that runs,
/// null where it has none of the name. PyFunction_SetVectorcall is new in Python 3.12.
template <class Function>
Function* python_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

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
  static auto* const code_of = python_function<vectorcallfunc(PyObject*)>("PyVectorcall_Function");
  static auto* const set_code =
      python_function<void(PyObject*, vectorcallfunc)>("PyFunction_SetVectorcall");
  if (code_of == nullptr || set_code == nullptr) return;
  if (!function.type().is(nanobind::module_::import_("types").attr("FunctionType"))) {
    nanobind::raise_type_error("expected a function");
  }
  if (!implementations().emplace(function.ptr(), implementation.ptr()).second) return;
  function.inc_ref();
  implementation.inc_ref();
  run_code = code_of(function.ptr());
  set_code(function.ptr(), &call);
}

void watch_tracing(Names names, nanobind::str flag) {
  traced_names = names.release().ptr();
  traced_flag = flag.release().ptr();
  PyUnicode_InternInPlace(&traced_flag);
}

}  // namespace heddle::python
