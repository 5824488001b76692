#pragma once

#include <cstdint>
#include <span>

#include "heddle/core/context.h"
#include "heddle/ops/speculation.h"

#include "cpu/count_reader.h"
#include "cpu/index_array.h"

namespace heddle {

struct NgramParams {
  cpu::MutableIndexMatrix draft_tokens;  // [num_rows, max_drafts]
  cpu::MutableIndexArray num_drafts;     // [num_rows]
  cpu::IndexMatrix tokens;               // [num_rows, max_tokens]
  cpu::IndexArray lengths;               // [num_rows]
  cpu::CountReader num_active;
  int64_t num_rows, max_tokens, max_drafts, min_ngram, max_ngram, max_length;
  NgramMatch match;

  /// Drafts of a sequence of `length` tokens whose n-gram ended with token `end` before.
  [[nodiscard]] constexpr int64_t num_drafts_after(int64_t end, int64_t length) const {
    const int64_t after = length - 1 - end, left = max_length - length;
    const int64_t most = max_length == 0 || left >= max_drafts ? max_drafts : left > 0 ? left : 0;
    return after < most ? after : most;
  }
};

namespace cpu::speculation {
void propose_ngram_drafts(const ExecContext& ctx, const NgramParams& params);
}
namespace cuda::speculation {
void propose_ngram_drafts(const NgramParams& params, const ExecContext& ctx);
}

}  // namespace heddle
