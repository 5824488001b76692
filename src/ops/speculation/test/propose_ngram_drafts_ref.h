#pragma once

#include <algorithm>
#include <cstdint>

#include "heddle/ops/speculation.h"

#include "ops/speculation/test/speculation_ref.h"

namespace heddle::ref {

/// The drafts of one sequence, as the contract defines them: every length and every place is tried.
inline Ints propose_ngram_drafts(const Ints& tokens, int64_t max_drafts,
                                 const NgramOptions& options) {
  const int64_t length = int64_t(tokens.size());
  for (int64_t n = std::min(options.max_ngram, length); n >= options.min_ngram; --n) {
    Ints places;
    for (int64_t s = 0; s < length - n; ++s) {
      if (std::equal(tokens.end() - n, tokens.end(), tokens.begin() + s)) places.push_back(s);
    }
    if (places.empty()) continue;
    const int64_t s = options.match == NgramMatch::kFirst ? places.front() : places.back();
    int64_t count = std::min(max_drafts, length - s - n);
    if (options.max_length > 0) {
      count = std::min(count, std::max<int64_t>(options.max_length - length, 0));
    }
    return Ints(tokens.begin() + s + n, tokens.begin() + s + n + count);
  }
  return {};
}

}  // namespace heddle::ref
