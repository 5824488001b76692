#pragma once

#include <cstdint>
#include <string>

namespace heddle {

/// A wrong index that a kernel on a GPU met in an array of the device: outside what it counts, or a
/// null page where a real one is needed. The kernel read and wrote nothing there. The outputs of
/// the row are NaN, or as they were where they are integers, a cache or states; no other row is
/// concerned. A plan of LoRA that is not the call's is of all rows.
struct Fault {
  std::string op;     // the operation
  std::string array;  // that holds the wrong value
  int64_t row = 0;    // as the operation counts them: sequences, requests, tokens
  int64_t value = 0;

  /// "batch_decode: pages holds 99 for row 3, which is out of range".
  [[nodiscard]] std::string text() const;
};

/// Where kernels leave the first fault: memory that the host reads without waiting for the device.
/// A CudaContext owns one; src/cuda has its layout.
struct FaultRecord;

}  // namespace heddle
