#pragma once

#include <cstddef>

namespace heddle::cuda {

// Who has which bytes of ExecContext::exchange. An op's words say by themselves which launch wrote them, so no op may find
// another's there.

inline constexpr size_t kLoraArrivals = 0;  // 8 bytes
inline constexpr size_t kListSums = 256;    // see list_sums_cuda.h
inline constexpr size_t kListSumsBytes = 8192 - kListSums;
inline constexpr size_t kNgramWords = 8192;  // see propose_ngram_drafts_cuda.cu
inline constexpr size_t kNgramWordsBytes = 8192;
/// Counters of batch_decode, the only bytes that are zero between calls.
inline constexpr size_t kDecodeCounters = kNgramWords + kNgramWordsBytes;
inline constexpr size_t kDecodeCountersBytes = 8192;
inline constexpr size_t kLoraPartials = kDecodeCounters + kDecodeCountersBytes;  // up to the end

}  // namespace heddle::cuda
