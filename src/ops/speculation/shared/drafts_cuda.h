#pragma once

#include "cuda/index_cuda.h"

#include "cpu/count_reader.h"
#include "ops/speculation/shared/draft_layout.h"
#include "ops/speculation/shared/mask_array.h"

namespace heddle::cuda::speculation {

/// A vector of bool or u8; one without data is absent.
template <class Byte>
struct DeviceMask {
  Byte* data;
  int64_t step;

  DeviceMask() = default;
  explicit DeviceMask(const BasicMaskArray<Byte>& m) : data(m.data()), step(m.step()) {}

  __device__ bool operator[](int64_t i) const { return data[i * step] != std::byte{0}; }
  __device__ void set(int64_t i, bool value) const {
    if (data != nullptr) data[i * step] = static_cast<std::byte>(value);
  }
};

/// Tokens [begin, end) of a request, and where those of the next one begin.
struct DeviceTokenRange {
  int64_t begin, end, next;
};

/// DraftLayout.
struct DeviceDrafts {
  ConstIndexVector indptr;
  int64_t num_starts;  // 0: max_drafts for every request
  int64_t max_drafts, num_tokens;
  bool rejects_placeholders;

  explicit DeviceDrafts(const DraftLayout& layout)
      : indptr(on_device(layout.indptr())),
        num_starts(layout.num_starts()),
        max_drafts(layout.max_drafts()),
        num_tokens(layout.num_tokens()),
        rejects_placeholders(layout.rejects_placeholders()) {}

  [[nodiscard]] __device__ bool rejects(int64_t token) const {
    return rejects_placeholders && token == kNoToken;
  }
  [[nodiscard]] __device__ int64_t clamp_drafts(int64_t n) const {
    return n < 0 ? 0 : n < max_drafts ? n : max_drafts;
  }
  /// Drafts of decode request p.
  [[nodiscard]] __device__ int64_t drafts(int64_t p) const {
    if (num_starts == 0) return max_drafts;
    return p + 1 < num_starts ? clamp_drafts(indptr[p + 1] - indptr[p]) : 0;
  }
  /// Where the tokens of decode request p begin, or those behind the last.
  [[nodiscard]] __device__ int64_t base(int64_t p) const {
    if (num_starts == 0) return p * (1 + max_drafts);
    return p + indptr[p < num_starts ? p : num_starts - 1];
  }
  /// Request p of a batch whose first num_decode requests are decode requests, of which it has
  /// `drafts`. Empty where it begins past the tokens.
  [[nodiscard]] __device__ DeviceTokenRange tokens(int64_t p, int64_t num_decode,
                                                   int64_t drafts_of_p) const {
    const bool decode = p < num_decode;
    const int64_t begin = base(decode ? p : num_decode) + (decode ? 0 : p - num_decode);
    const int64_t next = decode ? base(p + 1) : begin + 1;
    if (begin < 0 || begin >= num_tokens) return {0, 0, next};
    const int64_t end = begin + 1 + (decode ? drafts_of_p : 0);
    return {begin, end < num_tokens ? end : num_tokens, next};
  }
};

}  // namespace heddle::cuda::speculation
