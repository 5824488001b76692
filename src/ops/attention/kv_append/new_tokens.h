#pragma once

#include <cstring>
#include <optional>
#include <type_traits>

#include "heddle/core/check.h"

#include "ops/attention/kv_append/kv_append_kernels.h"
#include "ops/attention/paged/page_walk.h"

namespace heddle::cpu::attention {

/// The rows of k and v in host memory: those of sequence i are [begin(i), begin(i + 1)).
struct NewTokens {
  ConstTensorView k, v;
  std::optional<IndexArray> seq_indptr;  // nothing: one token per sequence
  int64_t num_seqs;

  [[nodiscard]] int64_t begin(int64_t seq) const { return seq_indptr ? (*seq_indptr)[seq] : seq; }
  /// The sequence of row t: the last one that begins at or before it.
  [[nodiscard]] int64_t seq_of(int64_t t) const {
    int64_t low = 0, high = num_seqs;  // begin(low) <= t < begin(high)
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (begin(middle) <= t ? low : high) = middle;
    }
    return low;
  }
};

/// The place of a token in a cache of To on the CPU.
template <class To>
class TokenPlace {
 public:
  TokenPlace(const PagedKv& cache, const PageWalk& walk, int64_t seq, int64_t position)
      : cache_(cache), walk_(walk) {
    walk.key_rows(seq, 0, position, 1, &key_);
    if constexpr (std::is_same_v<To, float8_e4m3>) walk.key_scales(seq, 0, position, 1, &scale_);
  }
  template <class From>
  void store_key(int64_t head, const From* from) const {
    store(head, from, 0, 0);
  }
  template <class From>
  void store_value(int64_t head, const From* from) const {
    store(head, from, walk_.value_distance(), walk_.value_scale_distance());
  }

 private:
  /// The element and the scale lie `distance` bytes and `scale_distance` floats from the key's.
  template <class From>
  void store(int64_t head, const From* from, int64_t distance, int64_t scale_distance) const {
    To* to = reinterpret_cast<To*>(key_ + head * walk_.head_distance() + distance);
    const int64_t n = cache_.head_dim;
    if constexpr (std::is_same_v<From, To>) {
      std::memcpy(to, from, static_cast<size_t>(n) * sizeof(To));
    } else if constexpr (std::is_same_v<To, float8_e4m3>) {
      float& scale = scale_[head * walk_.head_scale_distance() + scale_distance];
      if (cache_.has_token_scales) scale = scale_of_row(kDType<From>, from, n);
      quantise_row(kDType<From>, from, scale, to, n);
    } else {
      convert_row(kDType<From>, from, kDType<To>, to, n);
    }
  }

  const PagedKv& cache_;
  const PageWalk& walk_;
  std::byte* key_ = nullptr;  // of head 0
  float* scale_ = nullptr;    // its scale, in a cache of f8e4m3
};

}  // namespace heddle::cpu::attention

namespace heddle {

/// k and v [num_tokens, num_kv_heads, head_dim] of one dtype, on any device.
void check_new_tokens(const ExecContext& ctx, const PagedKv& cache, const ConstTensorView& k,
                      const ConstTensorView& v, Dim& num_tokens);

}  // namespace heddle
