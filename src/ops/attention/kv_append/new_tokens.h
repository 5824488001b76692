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

/// to [n] = from [n], rounded where their types differ.
template <class From, class To>
void store_row(const From* from, To* to, int64_t n) {
  if constexpr (std::is_same_v<From, To>) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(To));
  } else {
    convert_row(kDType<From>, from, kDType<To>, to, n);
  }
}

}  // namespace heddle::cpu::attention

namespace heddle {

/// k and v [num_tokens, num_kv_heads, head_dim] of one dtype, on any device.
void check_new_tokens(const ExecContext& ctx, const PagedKv& cache, const ConstTensorView& k,
                      const ConstTensorView& v, Dim& num_tokens);

}  // namespace heddle
