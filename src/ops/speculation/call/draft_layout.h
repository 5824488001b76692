#pragma once

#include <cstdint>

#include "heddle/ops/speculation.h"

#include "cpu/index_array.h"

namespace heddle {

/// Tokens [begin, end) of a request in the batch.
struct TokenRange {
  int64_t begin, end;
};

/// Which tokens of a batch belong to which request, as kernels of any device read it: Drafts and
/// num_tokens.
/// Whatever the starts hold, the ranges lie within [0, num_tokens).
class DraftLayout {
 public:
  DraftLayout(const Drafts& drafts, int64_t num_tokens)
      : indptr_(drafts.indptr),
        num_starts_(drafts.indptr ? drafts.indptr.size(0) : 0),
        max_drafts_(drafts.num_speculative_tokens),
        num_tokens_(num_tokens),
        reject_placeholders_(drafts.reject_placeholders) {}

  [[nodiscard]] constexpr int64_t num_tokens() const { return num_tokens_; }
  [[nodiscard]] constexpr int64_t max_drafts() const { return max_drafts_; }
  [[nodiscard]] constexpr const cpu::IndexArray& indptr() const { return indptr_; }
  [[nodiscard]] constexpr int64_t num_starts() const { return num_starts_; }
  [[nodiscard]] constexpr bool rejects_placeholders() const { return reject_placeholders_; }
  /// Whether this draft is a placeholder for none.
  [[nodiscard]] constexpr bool rejects(int64_t token) const {
    return reject_placeholders_ && token == kNoToken;
  }

  /// Drafts of decode request p.
  [[nodiscard]] constexpr int64_t drafts(int64_t p) const {
    if (num_starts_ == 0) return max_drafts_;
    if (p + 1 >= num_starts_) return 0;
    const int64_t n = indptr_[p + 1] - indptr_[p];
    return n < 0 ? 0 : n < max_drafts_ ? n : max_drafts_;
  }

  /// Where the tokens of decode request p begin, or those after the last.
  [[nodiscard]] constexpr int64_t base(int64_t p) const {
    if (num_starts_ == 0) return p * (1 + max_drafts_);
    return p + indptr_[p < num_starts_ ? p : num_starts_ - 1];
  }
  /// Where those of request p begin, in a batch whose first num_decode requests are decode
  /// requests.
  [[nodiscard]] constexpr int64_t begin(int64_t p, int64_t num_decode) const {
    const int64_t first = p < num_decode ? p : num_decode;  // one load, without a branch
    return base(first) + (p - first);
  }
  /// All of them. Empty where it begins past the tokens.
  [[nodiscard]] constexpr TokenRange tokens(int64_t p, int64_t num_decode) const {
    const int64_t first = begin(p, num_decode);
    return tokens_from(first, holds(first) && p < num_decode ? drafts(p) : 0);
  }
  /// Those of a request whose begin and drafts are known, which a kernel loads at once.
  [[nodiscard]] constexpr TokenRange tokens_from(int64_t first, int64_t num_drafts) const {
    if (!holds(first)) return {0, 0};
    const int64_t end = first + 1 + num_drafts;
    return {first, end < num_tokens_ ? end : num_tokens_};
  }

 private:
  [[nodiscard]] constexpr bool holds(int64_t token) const {
    return token >= 0 && token < num_tokens_;
  }

  cpu::IndexArray indptr_;
  int64_t num_starts_;  // 0: max_drafts_ for every request
  int64_t max_drafts_, num_tokens_;
  bool reject_placeholders_;
};

}  // namespace heddle
