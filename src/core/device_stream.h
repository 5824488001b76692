#pragma once

#include <memory>

#include "heddle/core/context.h"

namespace heddle {

struct FreeDeviceStream {
  void operator()(cudaStream_t stream) const noexcept;
};

/// A stream of a CUDA device with its owner; nothing on the CPU, where calls are done when they
/// return.
using DeviceStream = std::unique_ptr<CUstream_st, FreeDeviceStream>;

/// A stream that waits for no other. Throws what query_device throws.
[[nodiscard]] DeviceStream make_stream(Device device);

}  // namespace heddle
