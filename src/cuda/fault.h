#pragma once

#include <cstddef>
#include <cstdint>

#include "heddle/core/fault.h"

namespace heddle {

/// Lies in host memory that the device writes to, so that the host looks without waiting. No word
/// is written by both sides: a fault is pending while `written` and `told` differ, and `claimed`,
/// in device memory, lets one of the threads that meet a fault write it.
struct FaultRecord {
  static constexpr size_t kNameBytes = 40;  // with the zero at the end

  uint32_t* claimed = nullptr;  // in device memory: faults that a thread has begun to write
  uint32_t told = 0;            // by the host: faults that it has read
  uint32_t written = 0;         // by the device
  int64_t row = 0, value = 0;
  char op[kNameBytes] = {}, array[kNameBytes] = {};
};

}  // namespace heddle
