#pragma once

#include <cstdint>

#include "heddle/core/context.h"

#include "cpu/count_reader.h"
#include "cpu/index_array.h"
#include "ops/speculation/call/draft_layout.h"
#include "ops/speculation/call/mask_array.h"

namespace heddle {

struct VerifyParams {
  cpu::MutableIndexArray last_one_indices;  // [num_rows]
  MutableMaskArray accepted_tokens_mask;    // [num_tokens]
  cpu::IndexArray input_tokens;             // [num_tokens]
  cpu::IndexArray output_tokens;            // [>= num_tokens]
  DraftLayout layout;
  cpu::CountReader num_decode, num_prefill;
  int64_t num_rows;

  /// Decode and prefill requests together.
  [[nodiscard]] constexpr int64_t num_active(int64_t decode) const {
    const int64_t prefill = num_prefill.read(), left = num_rows - decode;
    return decode + (prefill < left ? prefill : left);
  }
};

/// One request, whose tokens are `range`: sets the mask of its accepted ones, the rest of which is
/// false before, and returns the last; -1 without tokens.
inline int64_t verify_request(const VerifyParams& params, TokenRange range) {
  if (range.begin == range.end) return -1;
  int64_t last = range.begin;
  params.accepted_tokens_mask.set(last, true);
  while (last + 1 < range.end) {
    const int64_t draft = params.input_tokens[last + 1];
    if (params.layout.rejects(draft) || draft != params.output_tokens[last]) break;
    params.accepted_tokens_mask.set(++last, true);
  }
  return last;
}

namespace cpu::speculation {
void verify_speculative_tokens(const ExecContext& ctx, const VerifyParams& params);
}
namespace cuda::speculation {
void verify_speculative_tokens(const ExecContext& ctx, const VerifyParams& params);
}

}  // namespace heddle
