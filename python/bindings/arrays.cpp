#include "arrays.h"

#include <bit>
#include <cstring>
#include <string>
#include <unordered_map>

#include "heddle/dlpack.h"

#include "dlpack_exchange.h"

namespace heddle::python {
namespace {

constexpr const char* kSupported = "f32, f16, bf16, i32, i64, u8, bool";

/// The table of C functions of a tensor type, null where it offers none. Looked up once a type: the attribute belongs to the
/// type by the standard. The types are kept alive, so that no other can take a cached address. Guarded by the GIL.
const ExchangeApi* exchange_api_of(PyTypeObject* type) {
  static auto& known = *new std::unordered_map<PyTypeObject*, const ExchangeApi*>();
  const auto found = known.find(type);
  if (found != known.end()) return found->second;
  const ExchangeApi* api = nullptr;
  const nb::object capsule = nb::steal(
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__"));
  if (capsule.is_valid() && PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) {
    api =
        static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  }
  PyErr_Clear();
  while (api != nullptr && api->version.major > kDlpackMajor) api = api->older;
  if (api != nullptr && api->tensor_from_object == nullptr) api = nullptr;
  Py_INCREF(type);
  known.emplace(type, api);
  return api;
}

/// Turns the Python exception that is set into a ValueError that names the tensor and keeps the cause.
[[noreturn]] void raise_from_current(const char* name, const char* what) {
  nb::python_error cause;
  nb::raise_from(cause, PyExc_ValueError, "%s: %s", name, what);
}

DType dtype_of_buffer(const char* name, const Py_buffer& buffer) {
  const char* format = buffer.format == nullptr ? "B" : buffer.format;
  const char* code = format;
  constexpr char kNative = std::endian::native == std::endian::little ? '<' : '>';
  if (*code == '@' || *code == '=' || *code == kNative) {
    ++code;
  } else if (*code == '<' || *code == '>' || *code == '!') {
    throw_error(ErrorCode::kUnsupported, name, " has the byte order of another machine (format \"",
                format, "\")");
  }
  if (code[0] != '\0' && code[1] == '\0') {
    switch (code[0]) {
      case 'f': return DType::kFloat32;
      case 'e': return DType::kFloat16;
      case 'B': return DType::kUInt8;
      case '?': return DType::kBool;
      case 'i':
      case 'l':
      case 'q':
        if (buffer.itemsize == 4) return DType::kInt32;
        if (buffer.itemsize == 8) return DType::kInt64;
        break;
      default: break;
    }
  }
  throw_error(ErrorCode::kUnsupported, name, " has elements of format \"", format,
              "\", supported: ", kSupported);
}

void check_writable(const char* name, bool writable) {
  HEDDLE_CHECK(writable, name, " is read-only, but the operation writes to it");
}

/// Whether the array is JAX's: immutable, which its capsule (bfloat16 has no buffer), of DLPack before 1.0, cannot say.
bool is_of_jax(nb::handle array) {
  const nb::object module = nb::steal(
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(array.ptr())), "__module__"));
  if (!module.is_valid()) PyErr_Clear();
  return nb::isinstance<nb::str>(module) &&
         std::strncmp(nb::borrow<nb::str>(module).c_str(), "jax", 3) == 0;
}

/// View of memory whose strides count bytes, as Python's buffers give them.
TensorView byte_strided_view(const char* name, void* data, DType dtype, int rank,
                             const Py_ssize_t* shape, const Py_ssize_t* strides) {
  HEDDLE_CHECK(rank <= kMaxRank, name, " has rank ", rank, ", at most ", kMaxRank, " is supported");
  std::array<int64_t, kMaxRank> extents{}, steps{};
  const auto item = static_cast<Py_ssize_t>(size_of(dtype));
  for (int d = 0; d < rank; ++d) {
    extents[size_t(d)] = shape[d];
    HEDDLE_CHECK(strides[d] % item == 0, name, ".strides[", d, "] is ", strides[d],
                 " bytes, expected a multiple of ", item);
    steps[size_t(d)] = strides[d] / item;
  }
  return {static_cast<std::byte*>(data), dtype, Device{}, std::span(extents.data(), size_t(rank)),
          std::span<const int64_t>(steps.data(), size_t(rank))};
}

/// NumPy's `PyArrayInterface`, which `__array_struct__` points to.
struct ArrayStruct {
  int two;  // always 2
  int rank;
  char kind;
  int item_bytes;
  int flags;
  Py_intptr_t *shape, *strides;
  void* data;
  PyObject* description;
};
constexpr int kArrayNotSwapped = 0x200, kArrayWriteable = 0x400;

}  // namespace

BorrowedArrays::~BorrowedArrays() {
  const size_t in_array = std::min(num_buffers_, first_buffers_.size());
  for (size_t i = 0; i < in_array; ++i) PyBuffer_Release(&first_buffers_[i]);
  for (Py_buffer& buffer : more_buffers_) PyBuffer_Release(&buffer);
}

TensorView BorrowedArrays::borrow(const char* name, nb::handle array, Access access) {
  PyTypeObject* type = Py_TYPE(array.ptr());
  TensorView view;
  if (type->tp_as_buffer != nullptr && type->tp_as_buffer->bf_getbuffer != nullptr) {
    view = from_buffer(name, array, access);
  } else if (const ExchangeApi* api = exchange_api_of(type)) {
    view = from_exchange(name, array, api);
  } else {
    view = from_capsule(name, array, access);
  }
  const bool is_empty = view.num_elements() == 0;
  // Frameworks give arrays without elements strides of all kinds; none of them means anything.
  if (is_empty) view = {view.raw(), view.dtype(), view.device(), view.shape()};
  HEDDLE_CHECK(view.raw() != nullptr || is_empty, name, " has no memory");
  HEDDLE_CHECK(is_empty || reinterpret_cast<uintptr_t>(view.raw()) % size_of(view.dtype()) == 0,
               name, " is not aligned to its elements of ", size_of(view.dtype()), " bytes");
  if (first_name_ == nullptr) {
    first_name_ = name;
    device_ = view.device();
  } else {
    HEDDLE_CHECK(view.device() == device_, name, " is on ", view.device(), ", but ", first_name_,
                 " is on ", device_);
  }
  return view;
}

TensorView BorrowedArrays::from_buffer(const char* name, nb::handle array, Access access) {
  Py_buffer& buffer = next_buffer();
  if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_RECORDS_RO) != 0) {
    PyErr_Clear();
    return from_array_struct(name, array, access);
  }
  ++num_buffers_;
  if (access == Access::kWrite) check_writable(name, buffer.readonly == 0);
  return byte_strided_view(name, buffer.buf, dtype_of_buffer(name, buffer), buffer.ndim,
                           buffer.shape, buffer.strides);
}

TensorView BorrowedArrays::from_array_struct(const char* name, nb::handle array, Access access) {
  nb::object capsule = nb::steal(PyObject_GetAttrString(array.ptr(), "__array_struct__"));
  if (!capsule.is_valid()) PyErr_Clear();
  if (!capsule.is_valid() || !PyCapsule_CheckExact(capsule.ptr())) {
    return from_capsule(name, array, access);
  }
  const auto& fields = *static_cast<const ArrayStruct*>(
      PyCapsule_GetPointer(capsule.ptr(), PyCapsule_GetName(capsule.ptr())));
  const nb::object type = array.attr("dtype");
  const nb::str dtype{nb::handle(type)};
  const bool is_bfloat16 = std::strcmp(dtype.c_str(), "bfloat16") == 0 && fields.item_bytes == 2;
  if (!is_bfloat16 || (fields.flags & kArrayNotSwapped) == 0) {
    throw_error(ErrorCode::kUnsupported, name, " has dtype ", dtype.c_str(),
                ", supported: ", kSupported);
  }
  if (access == Access::kWrite) check_writable(name, (fields.flags & kArrayWriteable) != 0);
  owners_.push_back(std::move(capsule));
  return byte_strided_view(name, fields.data, DType::kBFloat16, fields.rank, fields.shape,
                           fields.strides);
}

TensorView BorrowedArrays::from_exchange(const char* name, nb::handle array, const void* table) {
  const auto& api = *static_cast<const ExchangeApi*>(table);
  DLTensor tensor;
  if (api.tensor_from_object(array.ptr(), &tensor) != 0) {
    raise_from_current(name, "its framework does not export it");
  }
  const TensorView borrowed = view(name, tensor);
  if (borrowed.device().type == DeviceType::kCuda && stream_ == nullptr &&
      api.current_stream(tensor.device.device_type, tensor.device.device_id, &stream_) != 0) {
    throw nb::python_error();
  }
  return borrowed;
}

TensorView BorrowedArrays::from_capsule(const char* name, nb::handle array, Access access) {
  const nb::object method = nb::steal(PyObject_GetAttrString(array.ptr(), "__dlpack__"));
  if (!method.is_valid()) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError,
                 "%s is a %s, expected an array that offers the buffer protocol or __dlpack__",
                 name, Py_TYPE(array.ptr())->tp_name);
    throw nb::python_error();
  }
  // A versioned capsule says whether the memory is read-only; producers from before DLPack 1.0 do not know the keyword.
  nb::object capsule;
  try {
    capsule = method(nb::arg("max_version") = nb::make_tuple(kDlpackMajor, 0));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError))
      nb::raise_from(error, PyExc_ValueError, "%s: its __dlpack__ failed", name);
  }
  try {
    if (!capsule.is_valid()) capsule = method();
  } catch (nb::python_error& error) {
    nb::raise_from(error, PyExc_ValueError, "%s: its __dlpack__ failed", name);
  }
  // The capsule is not marked as used: it stays ours until the call is over, and its own destructor gives the memory back.
  const DLTensor* tensor = nullptr;
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    const auto& managed = *static_cast<const VersionedTensor*>(
        PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    HEDDLE_CHECK(managed.version.major == kDlpackMajor, name, " comes in DLPack version ",
                 managed.version.major, ", expected ", kDlpackMajor);
    if (access == Access::kWrite) check_writable(name, (managed.flags & kDlpackReadOnly) == 0);
    tensor = &managed.tensor;
  } else {
    HEDDLE_CHECK(PyCapsule_IsValid(capsule.ptr(), "dltensor"), name,
                 ": its __dlpack__ returned no tensor");
    if (access == Access::kWrite) check_writable(name, !is_of_jax(array));
    tensor = &static_cast<const DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"))
                  ->dl_tensor;
  }
  owners_.push_back(std::move(capsule));
  return view(name, *tensor);
}

Py_buffer& BorrowedArrays::next_buffer() {
  if (num_buffers_ < first_buffers_.size()) return first_buffers_[num_buffers_];
  return more_buffers_.emplace_back();
}

}  // namespace heddle::python
