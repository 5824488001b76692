#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/speculation/call/prepare_next_forward_pass_kernels.h"
#include "ops/speculation/call/rewind_kv_cache_kernels.h"
#include "ops/speculation/call/verify_speculative_tokens_kernels.h"

namespace heddle {

/// Where the tokens of the next step lie; any of these may drop what is stored.
struct NextStep {
  cpu::MutableIndexMatrix positions;      // [num_requests, num_tokens]
  cpu::MutableIndexMatrix slots;          // [num_requests, num_tokens]
  cpu::MutableIndexArray kv_lens;         // [num_requests]
  cpu::MutableIndexArray last_page_lens;  // [num_requests]
  int64_t num_tokens;

  [[nodiscard]] constexpr bool is_given() const {
    return positions.data() != nullptr || slots.data() != nullptr || kv_lens.data() != nullptr ||
           last_page_lens.data() != nullptr;
  }
  /// Request i, whose rewind is stored.
  constexpr void store(const KvBlocks& kv, int64_t i, const KvRewind& rewind) const {
    if (!is_given()) return;
    const int64_t count = rewind.left;
    const int64_t blocks = count < kv.max_blocks ? count : kv.max_blocks;
    const cpu::MutableIndexArray ids = kv.ids.row(i), to = positions.row(i), slot = slots.row(i);
    // Of position cached + j: its block and its place in there, which may be the one after the
    // last.
    int64_t b = count > 0 ? count - 1 : 0, place = count > 0 ? rewind.offset + 1 : 0;
    const int64_t cached = b * kv.block_size + place;
    int64_t id = b < blocks ? ids[b] : kNoBlock;
    for (int64_t j = 0; j < num_tokens; ++j) {
      if (place == kv.block_size) {
        place = 0;
        id = ++b < blocks ? ids[b] : kNoBlock;
      }
      to.set(j, cached + j);
      slot.set(j, id < 0 ? -1 : id * kv.block_size + place);
      ++place;
    }
    kv_lens.set(i, cached + num_tokens);
    last_page_lens.set(i, place);
  }
  constexpr void store_padding(int64_t i) const {
    if (!is_given()) return;
    const cpu::MutableIndexArray to = positions.row(i), slot = slots.row(i);
    for (int64_t j = 0; j < num_tokens; ++j) {
      to.set(j, -1);
      slot.set(j, -1);
    }
    kv_lens.set(i, 0);
    last_page_lens.set(i, 0);
  }
};

struct SpeculativeStepParams {
  VerifyParams verify;  // with num_rows the length of last_one_indices, or num_requests
  NextTokens next;
  cpu::IndexArray required_logit_indices;  // [>= num_tokens], or absent
  bool has_required_logit_indices;
  KvBlocks kv;
  Releases releases;
  NextStep next_step;
  int64_t num_requests, num_last_ones;
  bool write_prefill_rows;

  /// The largest number of rows that a tensor has.
  [[nodiscard]] int64_t num_rows() const {
    return std::max({num_requests, num_last_ones, releases.num_last_ids, releases.mask_size});
  }
  /// What request p, whose tokens begin at `begin`, goes on with. last: its last accepted token, or
  /// -1.
  constexpr void store_next(int64_t p, int64_t begin, int64_t last, bool decode) const {
    const int64_t max_drafts = verify.layout.max_drafts();
    const bool known = last >= 0;
    next.sampled_tokens.set(p, known ? verify.output_tokens[last] : kNoToken);
    if (has_required_logit_indices) {
      next.last_accepted_seq.set(p, known ? required_logit_indices[last] : -1);
    }
    if (known && decode) {
      next.store_accepted(p, max_drafts, verify.input_tokens, begin + 1,
                          [&](int64_t s) { return begin + s < last; });
    } else if (!known || write_prefill_rows) {
      next.store_none_accepted(p, max_drafts);
    }
  }
};

namespace cpu::speculation {
void speculative_step(const ExecContext& ctx, const SpeculativeStepParams& params);
}
namespace cuda::speculation {
void speculative_step(const ExecContext& ctx, const SpeculativeStepParams& params);
}  // namespace cuda::speculation

}  // namespace heddle
