#pragma once

#include "ops/speculation/prepare_next_forward_pass/prepare_next_forward_pass_kernels.h"
#include "ops/speculation/shared/drafts_cuda.h"

namespace heddle::cuda::speculation {

/// NextTokens.
struct DeviceNextTokens {
  MutableIndexVector sampled_tokens, last_accepted_seq;  // [num_rows]
  MutableIndexRows accepted_tokens;                      // [num_rows, max_drafts]
  MutableIndexVector accepted_counts;                    // [num_rows]

  explicit DeviceNextTokens(const NextTokens& next)
      : sampled_tokens(on_device(next.sampled_tokens)),
        last_accepted_seq(on_device(next.last_accepted_seq)),
        accepted_tokens(on_device(next.accepted_tokens)),
        accepted_counts(on_device(next.accepted_counts)) {}

  /// Row p: of the drafts from `first` on, those for which accepted(s) holds, -1 in place of the
  /// others.
  template <class Accepted>
  __device__ void store_accepted(int64_t p, int64_t max_drafts, const ConstIndexVector& tokens,
                                 int64_t first, const Accepted& accepted) const {
    const MutableIndexVector row = accepted_tokens.row(p);
    int64_t count = 0;
#pragma unroll 4
    for (int64_t s = 0; s < max_drafts; ++s) {
      const bool keep = accepted(s);
      row.set(s, keep ? tokens[first + s] : kNoToken);
      count += keep;
    }
    accepted_counts.set(p, count);
  }
  __device__ void store_none_accepted(int64_t p, int64_t max_drafts) const {
    const MutableIndexVector row = accepted_tokens.row(p);
    for (int64_t s = 0; s < max_drafts; ++s) row.set(s, kNoToken);
    accepted_counts.set(p, 0);
  }
};

}  // namespace heddle::cuda::speculation
