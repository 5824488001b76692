#pragma once

#include "ops/speculation/shared/drafts_cuda.h"
#include "ops/speculation/verify_speculative_tokens/verify_speculative_tokens_kernels.h"

namespace heddle::cuda::speculation {

/// Loads of one kind that a thread has under way at once.
inline constexpr int kLoadsAtOnce = 4;

/// VerifyParams.
struct DeviceVerify {
  MutableIndexVector last_one_indices;  // [num_rows]
  DeviceMask<std::byte> mask;           // [num_tokens]
  ConstIndexVector input, output;       // [num_tokens], [>= num_tokens]
  DeviceDrafts layout;
  DeviceCount num_decode, num_prefill;
  int64_t num_rows;

  explicit DeviceVerify(const VerifyParams& p)
      : last_one_indices(on_device(p.last_one_indices)),
        mask(p.accepted_tokens_mask),
        input(on_device(p.input_tokens)),
        output(on_device(p.output_tokens)),
        layout(p.layout),
        num_decode(on_device(p.num_decode)),
        num_prefill(on_device(p.num_prefill)),
        num_rows(p.num_rows) {}

  [[nodiscard]] __device__ int64_t num_active(int64_t decode) const {
    const int64_t prefill = num_prefill.read(), left = num_rows - decode;
    return decode + (prefill < left ? prefill : left);
  }

  /// Writes the mask of a request up to the next one and returns its last accepted token; -1
  /// without tokens.
  [[nodiscard]] __device__ int64_t verify(DeviceTokenRange range) const {
    if (range.begin == range.end) return -1;
    mask.set(range.begin, true);
    int64_t last = range.begin;
    bool accepts = true;
    for (int64_t first = range.begin + 1; first < range.end; first += kLoadsAtOnce) {
      int64_t drafted[kLoadsAtOnce], wanted[kLoadsAtOnce];
#pragma unroll
      for (int k = 0; k < kLoadsAtOnce;
           ++k) {  // past the end the last one again, which nobody looks at
        const int64_t t = first + k < range.end ? first + k : range.end - 1;
        drafted[k] = input[t];
        wanted[k] = output[t - 1];
      }
#pragma unroll
      for (int k = 0; k < kLoadsAtOnce; ++k) {
        if (first + k >= range.end) break;
        accepts = accepts && drafted[k] == wanted[k] && !layout.rejects(drafted[k]);
        mask.set(first + k, accepts);
        last += accepts;
      }
    }
    if (mask.data !=
        nullptr) {  // starts may leave a gap where they give a request more than max_drafts
      for (int64_t t = range.end; t < range.next && t < layout.num_tokens; ++t) mask.set(t, false);
    }
    return last;
  }

  /// Thread `thread` of `num_threads` clears its part of the mask behind the last request.
  __device__ void clear_tail(int64_t decode, int64_t active, int64_t thread,
                             int64_t num_threads) const {
    if (mask.data == nullptr) return;
    const int64_t tail = active == 0 ? 0 : layout.base(decode) + (active - decode);
    for (int64_t t = (tail < 0 ? 0 : tail) + thread; t < layout.num_tokens; t += num_threads) {
      mask.set(t, false);
    }
  }
};

}  // namespace heddle::cuda::speculation
