#pragma once

#include <cstdint>

#include "heddle/core/context.h"

#include "cpu/count_reader.h"
#include "cpu/index_array.h"
#include "ops/speculation/call/draft_layout.h"
#include "ops/speculation/call/mask_array.h"

namespace heddle {

/// What requests go on with; any of these may drop what is stored.
struct NextTokens {
  cpu::MutableIndexArray sampled_tokens;     // [num_rows]
  cpu::MutableIndexArray last_accepted_seq;  // [num_rows]
  cpu::MutableIndexMatrix accepted_tokens;   // [num_rows, max_drafts]
  cpu::MutableIndexArray accepted_counts;    // [num_rows]

  /// Row p: of the drafts from `first` on, those for which accepted(s) holds, -1 in place of the
  /// others.
  template <class Accepted>
  constexpr void store_accepted(int64_t p, int64_t max_drafts, const cpu::IndexArray& tokens,
                                int64_t first, const Accepted& accepted) const {
    const cpu::MutableIndexArray row = accepted_tokens.row(p);
    int64_t count = 0;
    for (int64_t s = 0; s < max_drafts; ++s) {
      const bool keep = accepted(s);
      row.set(s, keep ? tokens[first + s] : kNoToken);
      count += keep;
    }
    accepted_counts.set(p, count);
  }
  /// Row p of a request without drafts.
  constexpr void store_none_accepted(int64_t p, int64_t max_drafts) const {
    store_accepted(p, max_drafts, {}, 0, [](int64_t) { return false; });
  }
};

struct PrepareParams {
  NextTokens next;
  cpu::IndexArray output_tokens;           // [>= num_tokens]
  cpu::IndexArray required_logit_indices;  // [>= num_tokens]
  cpu::IndexArray last_one_indices;        // [num_rows]
  MaskArray accepted_tokens_mask;          // [num_tokens]
  cpu::IndexArray input_tokens;            // [num_tokens]
  DraftLayout layout;
  cpu::CountReader num_decode;
  int64_t num_rows;
  int64_t num_accepted_rows;  // <= num_rows: those of accepted_tokens and accepted_counts
  bool write_prefill_rows;

  /// What row p goes on with: output and required at last_one_indices[p], and the drafts whose mask
  /// is set.
  constexpr void prepare(int64_t p) const {
    const int64_t last = last_one_indices[p], max_drafts = layout.max_drafts();
    const int64_t decode_rows = num_decode.read();
    const bool known = last >= 0 && last < layout.num_tokens();
    next.sampled_tokens.set(p, known ? output_tokens[last] : kNoToken);
    next.last_accepted_seq.set(p, known ? required_logit_indices[last] : -1);
    if (p >= num_accepted_rows) return;
    if (known && p < decode_rows) {
      const TokenRange range = layout.tokens(p, decode_rows);
      const int64_t first = range.begin + 1;
      next.store_accepted(p, max_drafts, input_tokens, first, [&](int64_t s) {
        return first + s < range.end && accepted_tokens_mask[first + s];
      });
    } else if (!known || write_prefill_rows) {
      next.store_none_accepted(p, max_drafts);
    }
  }
};

namespace cpu::speculation {
void prepare_next_forward_pass(const ExecContext& ctx, const PrepareParams& params);
}
namespace cuda::speculation {
void prepare_next_forward_pass(const ExecContext& ctx, const PrepareParams& params);
}

}  // namespace heddle
