#include "bindings/new_array.h"

#include <array>
#include <initializer_list>

#include "heddle/core/tensor_view.h"

namespace heddle::python {
namespace {

namespace nb = nanobind;

/// How torch makes tensors for the code that torch.compile generates: without its parser of
/// arguments and its dispatcher, which take longer than the rest. The functions take shape, strides
/// and dtype, and `on_cuda` the current device. Null where torch has none, or is not imported.
struct TorchTensors {
  PyTypeObject* type = nullptr;
  PyObject *on_cpu = nullptr, *on_cuda = nullptr;
  PyObject* current_cuda = nullptr;  // tells the index of that device
  PyObject* count_cuda = nullptr;    // tells how many there are
  PyObject *boolean = nullptr, *int32 = nullptr, *int64 = nullptr;
};

/// Looked up when torch is first imported. Guarded by the GIL; nothing is ever released.
const TorchTensors& torch_tensors() {
  static constinit TorchTensors found;
  if (found.type != nullptr) return found;
  const nb::object modules = nb::borrow(PyImport_GetModuleDict());
  const nb::object torch = modules.attr("get")("torch");
  const nb::object type = nb::getattr(torch, "Tensor", nb::none());
  if (PyType_Check(type.ptr()) == 0) return found;
  const auto named = [](nb::object from, std::initializer_list<const char*> path) {
    for (const char* const name : path) from = nb::getattr(from, name, nb::none());
    return from.is_none() ? nullptr : from.release().ptr();
  };
  found = {.type = reinterpret_cast<PyTypeObject*>(nb::object(type).release().ptr()),
           .on_cpu = named(torch, {"_C", "_dynamo", "guards", "_empty_strided_cpu"}),
           .on_cuda = named(torch, {"_C", "_dynamo", "guards", "_empty_strided_cuda"}),
           .current_cuda = named(torch, {"_C", "_cuda_getDevice"}),
           .count_cuda = named(torch, {"_C", "_cuda_getDeviceCount"}),
           .boolean = named(torch, {"bool"}),
           .int32 = named(torch, {"int32"}),
           .int64 = named(torch, {"int64"})};
  return found;
}

nb::tuple tuple_of(std::span<const int64_t> numbers) {
  nb::tuple tuple = nb::steal<nb::tuple>(PyTuple_New(static_cast<Py_ssize_t>(numbers.size())));
  if (!tuple.is_valid()) throw nb::python_error();
  for (size_t i = 0; i < numbers.size(); ++i) {
    PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(i), nb::int_(numbers[i]).release().ptr());
  }
  return tuple;
}

/// Strides of neighbouring elements in row-major order.
nb::tuple strides_of(std::span<const int64_t> shape) {
  std::array<int64_t, kMaxRank> strides{};
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0; stride *= shape[d]) strides[d] = stride;
  return tuple_of({strides.data(), shape.size()});
}

/// Whether there is one device, which then is the current one; asked once, of a process that has a
/// tensor there. Reading the current one takes 0.3 us.
bool has_one_cuda(const TorchTensors& torch) {
  static constinit int count = 0;
  if (count == 0 && torch.count_cuda != nullptr) {
    count = nb::cast<int>(nb::handle(torch.count_cuda)());
  }
  return count == 1;
}

/// The function for this device, null where there is none.
PyObject* maker_for(const TorchTensors& torch, Device device) {
  if (device.type == DeviceType::kCpu) return torch.on_cpu;
  if (torch.on_cuda == nullptr || torch.current_cuda == nullptr) return nullptr;
  if (has_one_cuda(torch)) return torch.on_cuda;
  const auto current = nb::cast<int>(nb::handle(torch.current_cuda)());
  return current == device.index ? torch.on_cuda : nullptr;
}

}  // namespace

nb::object new_array(nb::handle like, Device device, std::span<const int64_t> shape, DType dtype) {
  const TorchTensors& torch = torch_tensors();
  if (Py_TYPE(like.ptr()) == torch.type) {
    PyObject* const make = maker_for(torch, device);
    PyObject* const of = dtype == DType::kBool    ? torch.boolean
                         : dtype == DType::kInt32 ? torch.int32
                                                  : torch.int64;
    if (make != nullptr && of != nullptr) {
      return nb::borrow(make)(tuple_of(shape), strides_of(shape), nb::handle(of));
    }
  }
  const char* const name = dtype == DType::kBool    ? "bool"
                           : dtype == DType::kInt32 ? "int32"
                                                    : "int64";
  return nb::module_::import_("heddle.compat._arrays").attr("empty")(like, tuple_of(shape), name);
}

}  // namespace heddle::python
