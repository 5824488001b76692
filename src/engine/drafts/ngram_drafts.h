#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "heddle/ops/speculation.h"

namespace heddle {

/// Drafts from a row's own tokens, those of its prompt and its answer: what followed where its last
/// tokens stood before.
///
///   std::array<int32_t, 8> drafts;
///   const size_t count = propose_from_ngrams(tokens, drafts, {.min_ngram = 2, .max_ngram = 4});
///
/// The drafts of op propose_ngram_drafts with these options, which has the definition: up to
/// drafts.size() of them, the rest is not touched. Returns how many. It copies no tokens and
/// allocates nothing; it reads all of them each time, or up to the first occurrence of max_ngram
/// tokens: some 30 us for 32768 tokens. Options out of range throw kInvalidArgument.
size_t propose_from_ngrams(std::span<const int32_t> tokens, std::span<int32_t> drafts,
                           const NgramOptions& options = {});

}  // namespace heddle
