#pragma once

#include <cstdint>
#include <ostream>

#include "core/math.h"

namespace heddle::cuda::metadata {

// Which instance of its kernel a conversion takes. All of them partition the array that they write
// or read into chunks, one a block.

inline constexpr int kRowThreads = 256;  // of a block, and rows that lie in shared memory at a time
inline constexpr int kManyPerThread = 8;

/// What the choice is made by.
struct ConversionCall {
  int64_t num_seqs = 0;
  int64_t size = 0;            // elements of the array that is cut into chunks
  bool is_contiguous = false;  // the contiguous instances take these tensors and this fill
  bool fills = false;          // something is written even without requests
  int num_sms = 1;
};

/// kContiguous: one window of rows, contiguous tensors; kGeneral: any rows and strides.
enum class ConversionKernel { kNone, kContiguous, kGeneral };
struct ConversionChoice {
  ConversionKernel kernel = ConversionKernel::kNone;
  int per_thread = 0;  // elements: 1 or kManyPerThread
  unsigned blocks = 0;

  friend constexpr bool operator==(const ConversionChoice&, const ConversionChoice&) = default;
  friend std::ostream& operator<<(std::ostream& out, const ConversionChoice& c) {
    constexpr const char* kNames[] = {"none", "contiguous", "general"};
    return out << kNames[static_cast<int>(c.kernel)] << " per_thread=" << c.per_thread
               << " blocks=" << c.blocks;
  }
};

/// Up to kShortPerSm elements a multiprocessor a thread has one of them, so that more warps share
/// the instructions.
[[nodiscard]] constexpr ConversionChoice select_conversion_kernel(const ConversionCall& call) {
  constexpr int64_t kShortPerSm = 4 * kRowThreads;
  if (call.size <= 0 || (call.num_seqs == 0 && !call.fills)) return {};
  const bool has_rows = call.num_seqs > 0 && call.num_seqs <= kRowThreads;
  const int per_thread = call.size <= kShortPerSm * call.num_sms ? 1 : kManyPerThread;
  return {
      call.is_contiguous && has_rows ? ConversionKernel::kContiguous : ConversionKernel::kGeneral,
      per_thread, static_cast<unsigned>(ceil_div(call.size, int64_t{kRowThreads} * per_thread))};
}

}  // namespace heddle::cuda::metadata
