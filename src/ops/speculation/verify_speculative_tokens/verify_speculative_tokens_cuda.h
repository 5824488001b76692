#pragma once

#include "ops/speculation/call/verify_speculative_tokens_kernels.h"

namespace heddle::cuda::speculation {

/// Loads of one kind that a thread has in flight at once.
inline constexpr int kLoadsAtOnce = 4;

/// Writes the mask of request `row`, whose tokens are `range`, up to the next one and returns its
/// last accepted token; -1 without tokens.
__device__ inline int64_t verify_tokens(const VerifyParams& p, int64_t row, int64_t num_decode,
                                        TokenRange range) {
  const int64_t next = row < num_decode ? p.layout.base(row + 1) : range.begin + 1;
  if (range.begin == range.end) return -1;
  const MutableMaskArray& mask = p.accepted_tokens_mask;
  mask.set(range.begin, true);
  int64_t last = range.begin;
  bool accepts = true;
  for (int64_t first = range.begin + 1; first < range.end; first += kLoadsAtOnce) {
    int64_t drafted[kLoadsAtOnce], wanted[kLoadsAtOnce];
#pragma unroll
    for (int k = 0; k < kLoadsAtOnce; ++k) {  // past the end the last one again, which is not used
      const int64_t t = first + k < range.end ? first + k : range.end - 1;
      drafted[k] = p.input_tokens[t];
      wanted[k] = p.output_tokens[t - 1];
    }
#pragma unroll
    for (int k = 0; k < kLoadsAtOnce; ++k) {
      if (first + k >= range.end) break;
      accepts = accepts && drafted[k] == wanted[k] && !p.layout.rejects(drafted[k]);
      mask.set(first + k, accepts);
      last += accepts;
    }
  }
  if (mask.data() != nullptr) {  // starts may give a request more tokens than max_drafts + 1
    for (int64_t t = range.end; t < next && t < p.layout.num_tokens(); ++t) mask.set(t, false);
  }
  return last;
}

/// Thread `thread` of `num_threads` clears its part of the mask after the last request.
__device__ inline void clear_mask_tail(const VerifyParams& p, int64_t num_decode,
                                       int64_t num_active, int64_t thread, int64_t num_threads) {
  if (p.accepted_tokens_mask.data() == nullptr) return;
  const int64_t tail = num_active == 0 ? 0 : p.layout.begin(num_active, num_decode);
  for (int64_t t = (tail < 0 ? 0 : tail) + thread; t < p.layout.num_tokens(); t += num_threads) {
    p.accepted_tokens_mask.set(t, false);
  }
}

}  // namespace heddle::cuda::speculation
