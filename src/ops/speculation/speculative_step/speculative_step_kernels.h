#pragma once

#include <cstdint>
#include <span>

#include "ops/speculation/prepare_next_forward_pass/prepare_next_forward_pass_kernels.h"
#include "ops/speculation/rewind_kv_cache/rewind_kv_cache_kernels.h"
#include "ops/speculation/verify_speculative_tokens/verify_speculative_tokens_kernels.h"

namespace heddle {

/// Where the tokens of the next step lie; any of these may drop what is stored.
struct NextStep {
  cpu::MutableIndexMatrix positions;      // [num_requests, num_tokens]
  cpu::MutableIndexMatrix slots;          // [num_requests, num_tokens]
  cpu::MutableIndexArray kv_lens;         // [num_requests]
  cpu::MutableIndexArray last_page_lens;  // [num_requests]
  int64_t num_tokens;

  /// Request i, after its rewind.
  void store(const KvBlocks& kv, int64_t i) const {
    const int64_t count = kv.count[i];
    const int64_t blocks = count < kv.max_blocks ? count : kv.max_blocks;
    const cpu::MutableIndexArray ids = kv.ids.row(i), to = positions.row(i), slot = slots.row(i);
    // Of position cached + j: its block and its place in there, which may be the one behind the
    // last.
    int64_t b = count > 0 ? count - 1 : 0, place = count > 0 ? kv.last_offset[i] + 1 : 0;
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
  void store_padding(int64_t i) const {
    for (int64_t j = 0; j < num_tokens; ++j) {
      positions.row(i).set(j, -1);
      slots.row(i).set(j, -1);
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
};

namespace cpu::speculation {
void speculative_step(const ExecContext& ctx, const SpeculativeStepParams& params);
}
namespace cuda::speculation {
void speculative_step(const ExecContext& ctx, const SpeculativeStepParams& params);
}  // namespace cuda::speculation

}  // namespace heddle
