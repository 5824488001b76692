#include "heddle/ops/speculation.h"

#include "heddle/core/error.h"

#include "capi/convert.h"
#include "capi/count.h"
#include "capi/guard.h"

using heddle::capi::count_of;
using heddle::capi::count_or_absent;
using heddle::capi::guard;
using heddle::capi::in;
using heddle::capi::in_or_absent;
using heddle::capi::out;
using heddle::capi::out_or_absent;
using heddle::capi::required;

namespace {

heddle::Drafts drafts_of(const heddle_drafts* drafts) {
  const heddle_drafts& d = required("drafts", drafts);
  return {.num_speculative_tokens = d.num_speculative_tokens,
          .indptr = in_or_absent("draft_indptr", d.indptr),
          .reject_placeholders = d.reject_placeholders};
}

heddle::KvBlockState state_of(const heddle_kv_block_state* state) {
  const heddle_kv_block_state& s = required("state", state);
  return {.last_kv_block_offset = out("last_kv_block_offset", s.last_kv_block_offset),
          .kv_length_offsets = out("kv_length_offsets", s.kv_length_offsets),
          .kv_block_counts = out("kv_block_counts", s.kv_block_counts),
          .last_kv_block_id = out("last_kv_block_id", s.last_kv_block_id),
          .kv_block_ids = out("kv_block_ids", s.kv_block_ids)};
}

heddle::ReleasedBlocks released_of(const heddle_released_blocks* released) {
  if (released == nullptr) return {};
  return {.blocks_to_release = out_or_absent("blocks_to_release", released->blocks_to_release),
          .remove_mask = out_or_absent("remove_mask", released->remove_mask),
          .released_ids = out_or_absent("released_ids", released->released_ids),
          .num_released = out_or_absent("num_released", released->num_released)};
}

heddle::SpeculativeStepOutputs outputs_of(const heddle_speculative_step_outputs* outputs) {
  const heddle_speculative_step_outputs& o = required("outputs", outputs);
  return {.last_one_indices = out_or_absent("last_one_indices", o.last_one_indices),
          .accepted_tokens_mask = out_or_absent("accepted_tokens_mask", o.accepted_tokens_mask),
          .sampled_tokens = out_or_absent("sampled_tokens", o.sampled_tokens),
          .last_accepted_seq = out_or_absent("last_accepted_seq", o.last_accepted_seq),
          .accepted_tokens = out_or_absent("accepted_tokens", o.accepted_tokens),
          .accepted_counts = out_or_absent("accepted_counts", o.accepted_counts),
          .released = released_of(&o.released),
          .next_positions = out_or_absent("next_positions", o.next_positions),
          .next_slots = out_or_absent("next_slots", o.next_slots),
          .next_kv_lens = out_or_absent("next_kv_lens", o.next_kv_lens),
          .next_last_page_len = out_or_absent("next_last_page_len", o.next_last_page_len)};
}

heddle::SpeculativeStepOptions options_of(const heddle_speculative_step_options* options) {
  if (options == nullptr) return {};
  return {.write_prefill_rows = options->write_prefill_rows,
          .num_next_tokens = options->num_next_tokens};
}

heddle::NgramOptions options_of(const heddle_ngram_options* options) {
  if (options == nullptr) return {};
  const bool is_known = options->match == HEDDLE_NGRAM_FIRST || options->match == HEDDLE_NGRAM_LAST;
  HEDDLE_CHECK(is_known, "match is ", options->match, ", expected HEDDLE_NGRAM_FIRST or LAST");
  return {.min_ngram = options->min_ngram,
          .max_ngram = options->max_ngram,
          .match = static_cast<heddle::NgramMatch>(options->match),
          .max_length = options->max_length};
}

}  // namespace

heddle_status heddle_verify_speculative_tokens(heddle_context* context, DLTensor* last_one_indices,
                                               DLTensor* accepted_tokens_mask,
                                               const DLTensor* input_tokens,
                                               const DLTensor* output_tokens,
                                               const heddle_count* num_decode_requests,
                                               const heddle_count* num_prefill_requests,
                                               const heddle_drafts* drafts) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::verify_speculative_tokens(
        ctx, out("last_one_indices", last_one_indices),
        out("accepted_tokens_mask", accepted_tokens_mask), in("input_tokens", input_tokens),
        in("output_tokens", output_tokens), count_of("num_decode_requests", num_decode_requests),
        count_of("num_prefill_requests", num_prefill_requests), drafts_of(drafts));
  });
}

heddle_status heddle_prepare_next_forward_pass(
    heddle_context* context, DLTensor* sampled_tokens, DLTensor* last_accepted_seq,
    DLTensor* accepted_tokens, DLTensor* accepted_counts, const DLTensor* output_tokens,
    const DLTensor* required_logit_indices, const DLTensor* last_one_indices,
    const DLTensor* accepted_tokens_mask, const DLTensor* input_tokens,
    const heddle_count* num_decode_requests, const heddle_drafts* drafts, bool write_prefill_rows) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::prepare_next_forward_pass(
        ctx, out("sampled_tokens", sampled_tokens), out("last_accepted_seq", last_accepted_seq),
        out("accepted_tokens", accepted_tokens), out("accepted_counts", accepted_counts),
        in("output_tokens", output_tokens), in("required_logit_indices", required_logit_indices),
        in("last_one_indices", last_one_indices), in("accepted_tokens_mask", accepted_tokens_mask),
        in("input_tokens", input_tokens), count_of("num_decode_requests", num_decode_requests),
        drafts_of(drafts), {.write_prefill_rows = write_prefill_rows});
  });
}

heddle_status heddle_rewind_kv_cache(heddle_context* context,
                                     const heddle_released_blocks* released,
                                     const heddle_kv_block_state* state,
                                     const DLTensor* accepted_counts,
                                     const DLTensor* prefill_status, const heddle_drafts* drafts,
                                     int64_t block_size_tokens, const heddle_count* num_active) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::rewind_kv_cache(ctx, released_of(released), state_of(state),
                            in("accepted_counts", accepted_counts),
                            in("prefill_status", prefill_status), drafts_of(drafts),
                            block_size_tokens, count_or_absent("num_active", num_active));
  });
}

void heddle_speculative_step_outputs_init(heddle_speculative_step_outputs* outputs) {
  *outputs = {};
}

void heddle_speculative_step_options_init(heddle_speculative_step_options* options) {
  const heddle::SpeculativeStepOptions defaults;
  *options = {.write_prefill_rows = defaults.write_prefill_rows,
              .num_next_tokens = defaults.num_next_tokens};
}

heddle_status heddle_speculative_step(
    heddle_context* context, const heddle_speculative_step_outputs* outputs,
    const heddle_kv_block_state* state, const DLTensor* input_tokens, const DLTensor* output_tokens,
    const DLTensor* required_logit_indices, const heddle_count* num_decode_requests,
    const heddle_count* num_prefill_requests, const heddle_drafts* drafts,
    int64_t block_size_tokens, const heddle_speculative_step_options* options) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::speculative_step(ctx, outputs_of(outputs), state_of(state),
                             in("input_tokens", input_tokens), in("output_tokens", output_tokens),
                             in_or_absent("required_logit_indices", required_logit_indices),
                             count_of("num_decode_requests", num_decode_requests),
                             count_of("num_prefill_requests", num_prefill_requests),
                             drafts_of(drafts), block_size_tokens, options_of(options));
  });
}

void heddle_ngram_options_init(heddle_ngram_options* options) {
  const heddle::NgramOptions defaults;
  *options = {.min_ngram = defaults.min_ngram,
              .max_ngram = defaults.max_ngram,
              .match = static_cast<heddle_ngram_match>(defaults.match),
              .max_length = defaults.max_length};
}

heddle_status heddle_propose_ngram_drafts(heddle_context* context, DLTensor* draft_tokens,
                                          DLTensor* num_drafts, const DLTensor* tokens,
                                          const DLTensor* lengths, int64_t num_speculative_tokens,
                                          const heddle_count* num_active,
                                          const heddle_ngram_options* options) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::propose_ngram_drafts(ctx, out("draft_tokens", draft_tokens),
                                 out("num_drafts", num_drafts), in("tokens", tokens),
                                 in("lengths", lengths), num_speculative_tokens,
                                 count_or_absent("num_active", num_active), options_of(options));
  });
}
