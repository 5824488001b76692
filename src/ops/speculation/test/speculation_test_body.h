#pragma once

#include "heddle/core/thread_pool.h"
#include "heddle/ops/speculation.h"

#include "mirror.h"
#include "random.h"

namespace heddle::testing {

/// How the tests of this family call an op: each call gets a context and a mirror for its tensors.
/// This one calls on the CPU, with one to three threads.
class SpeculationRun {
 public:
  using Call = FunctionRef<void(const ExecContext&, Mirror&)>;

  virtual ~SpeculationRun() = default;
  virtual void call(Call op) const {
    ThreadPool pool(static_cast<int>(random_int(1, 3)));
    ExecContext ctx;
    ctx.threads = &pool;
    Mirror mirror;
    op(ctx, mirror);
  }
  /// Of random batches where the CPU takes `usual`.
  [[nodiscard]] virtual int rounds(int usual) const { return usual; }
  /// Of requests in a test of many.
  [[nodiscard]] virtual int64_t many(int64_t usual) const { return usual; }
};

inline Count mirrored(Mirror& m, const Count& count) {
  return count.on_device() ? Count(m(count.tensor())) : count;
}
inline Drafts mirrored(Mirror& m, const Drafts& drafts) {
  return {drafts.num_speculative_tokens, m(drafts.indptr), drafts.reject_placeholders};
}
inline KvBlockState mirrored(Mirror& m, const KvBlockState& s) {
  return {m(s.last_kv_block_offset), m(s.kv_length_offsets), m(s.kv_block_counts),
          m(s.last_kv_block_id), m(s.kv_block_ids)};
}
inline ReleasedBlocks mirrored(Mirror& m, const ReleasedBlocks& r) {
  return {m(r.blocks_to_release), m(r.remove_mask), m(r.released_ids), m(r.num_released)};
}
inline SpeculativeStepOutputs mirrored(Mirror& m, const SpeculativeStepOutputs& o) {
  return {.last_one_indices = m(o.last_one_indices),
          .accepted_tokens_mask = m(o.accepted_tokens_mask),
          .sampled_tokens = m(o.sampled_tokens),
          .last_accepted_seq = m(o.last_accepted_seq),
          .accepted_tokens = m(o.accepted_tokens),
          .accepted_counts = m(o.accepted_counts),
          .released = mirrored(m, o.released),
          .next_positions = m(o.next_positions),
          .next_slots = m(o.next_slots),
          .next_kv_lens = m(o.next_kv_lens),
          .next_last_page_len = m(o.next_last_page_len)};
}

// The ops with a run in place of the context.

inline void verify_speculative_tokens(const SpeculationRun& run, TensorView last_one_indices,
                                      TensorView mask, ConstTensorView input,
                                      ConstTensorView output, const Count& num_decode,
                                      const Count& num_prefill, const Drafts& drafts) {
  run.call([&](const ExecContext& ctx, Mirror& m) {
    heddle::verify_speculative_tokens(ctx, m(last_one_indices), m(mask), m(input), m(output),
                                      mirrored(m, num_decode), mirrored(m, num_prefill),
                                      mirrored(m, drafts));
    m.back();
  });
}

inline void prepare_next_forward_pass(const SpeculationRun& run, TensorView sampled_tokens,
                                      TensorView last_accepted_seq, TensorView accepted_tokens,
                                      TensorView accepted_counts, ConstTensorView output,
                                      ConstTensorView required, ConstTensorView last_one_indices,
                                      ConstTensorView mask, ConstTensorView input,
                                      const Count& num_decode, const Drafts& drafts,
                                      const PrepareOptions& options = {}) {
  run.call([&](const ExecContext& ctx, Mirror& m) {
    heddle::prepare_next_forward_pass(ctx, m(sampled_tokens), m(last_accepted_seq),
                                      m(accepted_tokens), m(accepted_counts), m(output),
                                      m(required), m(last_one_indices), m(mask), m(input),
                                      mirrored(m, num_decode), mirrored(m, drafts), options);
    m.back();
  });
}

inline void rewind_kv_cache(const SpeculationRun& run, const ReleasedBlocks& released,
                            const KvBlockState& state, ConstTensorView accepted_counts,
                            ConstTensorView prefill_status, const Drafts& drafts,
                            int64_t block_size_tokens, const Count& num_active = {}) {
  run.call([&](const ExecContext& ctx, Mirror& m) {
    heddle::rewind_kv_cache(ctx, mirrored(m, released), mirrored(m, state), m(accepted_counts),
                            m(prefill_status), mirrored(m, drafts), block_size_tokens,
                            mirrored(m, num_active));
    m.back();
  });
}

inline void propose_ngram_drafts(const SpeculationRun& run, TensorView draft_tokens,
                                 TensorView num_drafts, ConstTensorView tokens,
                                 ConstTensorView lengths, int64_t num_speculative_tokens,
                                 const Count& num_active = {}, const NgramOptions& options = {}) {
  run.call([&](const ExecContext& ctx, Mirror& m) {
    heddle::propose_ngram_drafts(ctx, m(draft_tokens), m(num_drafts), m(tokens), m(lengths),
                                 num_speculative_tokens, mirrored(m, num_active), options);
    m.back();
  });
}

inline void speculative_step(const SpeculationRun& run, const SpeculativeStepOutputs& outputs,
                             const KvBlockState& state, ConstTensorView input,
                             ConstTensorView output, ConstTensorView required,
                             const Count& num_decode, const Count& num_prefill,
                             const Drafts& drafts, int64_t block_size_tokens,
                             const SpeculativeStepOptions& options = {}) {
  run.call([&](const ExecContext& ctx, Mirror& m) {
    heddle::speculative_step(ctx, mirrored(m, outputs), mirrored(m, state), m(input), m(output),
                             m(required), mirrored(m, num_decode), mirrored(m, num_prefill),
                             mirrored(m, drafts), block_size_tokens, options);
    m.back();
  });
}

}  // namespace heddle::testing
