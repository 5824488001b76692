#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

/// Whether a waiting request may start, as far as its adapters decide it.
enum class Admission : uint8_t {
  kWaits,   // its adapters are not resident; others may start before it
  kStarts,  // as soon as there is a place in the batch and memory for its tokens
  kNever,   // its adapters do not fit, although nothing is in use
};

/// The oldest waiting requests, of which admission is decided at once.
inline constexpr size_t kMaxScheduledRows = 256;

}  // namespace heddle
