#pragma once

#include <cstdint>
#include <dlpack/dlpack.h>

// The parts of DLPack 1.x that Debian's header (0.6) does not have yet: the versioned capsule and
// the table of functions that a tensor type offers in `__dlpack_c_exchange_api__`. Layouts as the
// standard fixes them for major version 1.
namespace heddle::python {

inline constexpr uint32_t kDlpackMajor = 1;
inline constexpr uint64_t kDlpackReadOnly = 1;  // bit of VersionedTensor::flags

struct DlpackVersion {
  uint32_t major, minor;
};

/// What a capsule named "dltensor_versioned" points to (DLManagedTensorVersioned).
struct VersionedTensor {
  DlpackVersion version;
  void* manager;
  void (*deleter)(VersionedTensor* self);
  uint64_t flags;
  DLTensor tensor;
};

/// What the capsule "dlpack_exchange_api" of a tensor type points to (DLPackExchangeAPI). The
/// functions return 0, or -1 with a Python exception set. None of them synchronises.
struct ExchangeApi {
  DlpackVersion version;
  const ExchangeApi* older;  // for consumers of an earlier major version, or null
  void* allocate;
  int (*managed_from_object)(void* object, VersionedTensor** out);
  void* to_object;
  int (*tensor_from_object)(void* object, DLTensor* out);  // borrows; may be null
  int (*current_stream)(DLDeviceType type, int32_t index, void** stream);
};

}  // namespace heddle::python
