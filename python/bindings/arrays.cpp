#include "bindings/arrays.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <unordered_map>

#include "heddle/core/overlap.h"
#include "heddle/dlpack.h"

#include "bindings/dlpack_exchange.h"
#include "bindings/name_of_type.h"

namespace heddle::python {
namespace {

/// How DLPack and the CUDA array interface write the default stream, since 0 could mean none.
constexpr uintptr_t kDefaultStreamNumber = 1;
constexpr const char* kSupported = "f32, f16, bf16, i32, i64, u8, bool, f8e4m3";

/// What a tensor type offers, null where it does not.
struct TensorType {
  const ExchangeApi* api = nullptr;
  PyObject* requires_grad = nullptr;  // torch's descriptor: called without a look-up by name
};

const ExchangeApi* exchange_api_of(PyTypeObject* type) {
  const nb::object capsule = nb::steal(
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__"));
  const ExchangeApi* api = nullptr;
  if (capsule.is_valid() && PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) {
    api =
        static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  }
  PyErr_Clear();
  while (api != nullptr && api->version.major > kDlpackMajor) api = api->older;
  return api != nullptr && api->tensor_from_object == nullptr ? nullptr : api;
}

PyObject* requires_grad_of(PyTypeObject* type) {
  nb::object found =
      nb::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "requires_grad"));
  if (!found.is_valid()) PyErr_Clear();
  if (!found.is_valid() || Py_TYPE(found.ptr()) != &PyGetSetDescr_Type) return nullptr;
  return found.release().ptr();
}

/// Looked up once a type: `__dlpack_c_exchange_api__` belongs to the type by the standard. The
/// types are kept alive, so that no other can take a cached address. Guarded by the GIL. The arrays
/// of a call mostly are of one type: the last one is found without a search.
const TensorType& tensor_type_of(PyTypeObject* type) {
  using Known = std::unordered_map<PyTypeObject*, TensorType>;
  static auto& known = *new Known();
  static constinit const Known::value_type* last = nullptr;  // maps do not move their elements
  if (last != nullptr && last->first == type) return last->second;
  auto found = known.find(type);
  if (found == known.end()) {
    TensorType offered{exchange_api_of(type), requires_grad_of(type)};
    Py_INCREF(reinterpret_cast<PyObject*>(type));
    found = known.emplace(type, offered).first;
  }
  last = &*found;
  return found->second;
}

/// Turns the Python exception that is set into a ValueError that names the tensor and keeps the
/// cause.
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

/// Gradients are of floats alone; others need not be asked.
bool may_require_grad(DType dtype) {
  return dtype != DType::kInt32 && dtype != DType::kInt64 && dtype != DType::kUInt8 &&
         dtype != DType::kBool;
}

/// A leaf that requires grad is a parameter to be trained: torch, too, refuses to write to it.
void check_no_trained_leaf(const char* name, nb::handle tensor, PyObject* requires_grad) {
  static const auto get =
      reinterpret_cast<descrgetfunc>(PyType_GetSlot(&PyGetSetDescr_Type, Py_tp_descr_get));
  const nb::object requires_it = nb::steal(
      get(requires_grad, tensor.ptr(), reinterpret_cast<PyObject*>(Py_TYPE(tensor.ptr()))));
  if (!requires_it.is_valid()) throw nb::python_error();
  HEDDLE_CHECK(requires_it.ptr() != Py_True || !nb::cast<bool>(tensor.attr("is_leaf")), name,
               " is a leaf that requires grad, but the operation writes to it: pass ", name,
               ".detach()");
}

/// Whether the array is JAX's: immutable, which its capsule (bfloat16 has no buffer), of DLPack
/// before 1.0, cannot say.
bool is_of_jax(nb::handle array) {
  const nb::object module = nb::steal(
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(array.ptr())), "__module__"));
  if (!module.is_valid()) PyErr_Clear();
  return nb::isinstance<nb::str>(module) &&
         std::strncmp(nb::borrow<nb::str>(module).c_str(), "jax", 3) == 0;
}

/// Whether an array that offers DLPack is in a GPU's memory.
bool is_on_gpu(nb::handle array) {
  const nb::tuple device = nb::cast<nb::tuple>(array.attr("__dlpack_device__")());
  const auto type = nb::cast<int>(nb::int_(device[0]));
  return type == kDLCUDA || type == kDLCUDAManaged;
}

/// The stream that the array's framework works on, where its CUDA array interface tells (CuPy's
/// does); else the default one.
void* current_stream_of(nb::handle array) {
  const nb::object fields = nb::getattr(array, "__cuda_array_interface__", nb::dict());
  const nb::object stream = fields.attr("get")("stream");
  if (stream.is_none()) return nullptr;
  const auto number = nb::cast<uintptr_t>(stream);
  return reinterpret_cast<void*>(number == kDefaultStreamNumber ? 0 : number);
}

/// A capsule with the array's memory, ready for work on `stream` where it is on a GPU: a versioned
/// one, which says whether the memory is read-only, or one from before DLPack 1.0, when producers
/// did not know the keyword.
nb::object dlpack_capsule(nb::handle array, std::optional<void*> stream) {
  nb::dict options;
  if (stream) {
    const auto number = reinterpret_cast<uintptr_t>(*stream);
    options["stream"] = number == 0 ? kDefaultStreamNumber : number;
  }
  const nb::object method = array.attr("__dlpack__");
  try {
    nb::dict versioned;
    versioned.update(options);
    versioned["max_version"] = nb::make_tuple(kDlpackMajor, 0);
    return method(**versioned);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return method(**options);
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
  TensorView view;
  if (PyObject_CheckBuffer(array.ptr()) != 0) {
    view = from_buffer(name, array, access);
  } else if (const TensorType& offered = tensor_type_of(Py_TYPE(array.ptr()));
             offered.api != nullptr) {
    view = from_exchange(name, array, access, offered.api);
    if (access == Access::kWrite && offered.requires_grad != nullptr &&
        may_require_grad(view.dtype())) {
      check_no_trained_leaf(name, array, offered.requires_grad);
    }
  } else {
    view = from_capsule(name, array, access);
  }
  const bool is_empty = view.num_elements() == 0;
  // Frameworks give arrays without elements strides of all kinds; none of them means anything.
  if (is_empty) view = {view.raw(), view.dtype(), view.device(), view.shape()};
  HEDDLE_CHECK(view.raw() != nullptr || is_empty, name, " has no memory");
  const size_t past = reinterpret_cast<uintptr_t>(view.raw()) & (size_of(view.dtype()) - 1);
  HEDDLE_CHECK(is_empty || past == 0, name, " is not aligned to its elements of ",
               size_of(view.dtype()), " bytes");
  if (access == Access::kWrite) check_no_overlap(name, view);
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
  const auto is = [&](const char* known, DType type) {
    return std::strcmp(dtype.c_str(), known) == 0 && size_t(fields.item_bytes) == size_of(type);
  };
  const bool is_float8 = is("float8_e4m3fn", DType::kFloat8E4M3);
  if (!(is_float8 || is("bfloat16", DType::kBFloat16)) || (fields.flags & kArrayNotSwapped) == 0) {
    throw_error(ErrorCode::kUnsupported, name, " has dtype ", dtype.c_str(),
                ", supported: ", kSupported);
  }
  if (access == Access::kWrite) check_writable(name, (fields.flags & kArrayWriteable) != 0);
  owners_.push_back(std::move(capsule));
  return byte_strided_view(name, fields.data, is_float8 ? DType::kFloat8E4M3 : DType::kBFloat16,
                           fields.rank, fields.shape, fields.strides);
}

TensorView BorrowedArrays::from_exchange(const char* name, nb::handle array, Access access,
                                         const void* table) {
  const auto& api = *static_cast<const ExchangeApi*>(table);
  DLTensor tensor;
  if (api.tensor_from_object(array.ptr(), &tensor) != 0) {
    raise_from_current(name, "its framework does not export it");
  }
  const TensorView borrowed = view(name, tensor);
  if (borrowed.device().type != DeviceType::kCuda) return borrowed;
  if (stream_framework_ == &api) return borrowed;
  void* stream = nullptr;
  if (api.current_stream(tensor.device.device_type, tensor.device.device_id, &stream) != 0) {
    raise_from_current(name, "its framework tells no stream");
  }
  if (!stream_) stream_ = stream;
  if (*stream_ != stream) return from_capsule(name, array, access);
  stream_framework_ = &api;
  return borrowed;
}

TensorView BorrowedArrays::from_capsule(const char* name, nb::handle array, Access access) {
  if (!nb::hasattr(array, "__dlpack__")) {
    PyErr_Format(PyExc_TypeError,
                 "%s is a %s, expected an array that offers the buffer protocol or __dlpack__",
                 name, name_of_type(array).c_str());
    throw nb::python_error();
  }
  nb::object capsule;
  try {
    const bool on_gpu = is_on_gpu(array);
    if (on_gpu && !stream_) stream_ = current_stream_of(array);
    capsule = dlpack_capsule(array, on_gpu ? stream_ : std::nullopt);
  } catch (nb::python_error& error) {
    nb::raise_from(error, PyExc_ValueError, "%s: its __dlpack__ failed", name);
  }
  // The capsule is not marked as used: it stays ours until the call is over, and its own destructor
  // gives the memory back.
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
