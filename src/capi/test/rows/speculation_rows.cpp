#include <tuple>
#include <utility>
#include <vector>

#include "heddle/c_api.h"
#include "heddle/core/count.h"
#include "heddle/ops/mamba.h"
#include "heddle/ops/speculation.h"

#include "capi/test/rows/rows.h"

namespace heddle::testing {
namespace {

/// A count on the device, or where its tensor is absent `value`.
auto count_of(const char* name, int32_t on_device, int64_t value) {
  return made(
      [=](auto*, DLTensor* t) {
        return heddle_count{value, t};
      },
      [=](auto&, TensorView t) { return t ? Count(t) : Count(value); },
      in<int32_t>(name, {1}, {on_device}).optional());
}
auto drafts_of(CallTensor indptr, bool reject_placeholders) {
  return fields<heddle_drafts, Drafts>(2, std::move(indptr), reject_placeholders);
}
auto block_state() {
  return fields<heddle_kv_block_state, KvBlockState>(
      in_place<int64_t>("last_kv_block_offset", {1}, {0}),
      in_place<int64_t>("kv_length_offsets", {1}, {5}),
      in_place<int64_t>("kv_block_counts", {1}, {3}),
      in_place<int64_t>("last_kv_block_id", {1}, {3}),
      in_place<int64_t>("kv_block_ids", {1, 4}, {4, 9, 3, -1}));
}

/// One request with two drafts, of which the first is confirmed; five tokens in blocks 4 9 3 of
/// two.
std::vector<Row> speculation_rows_of_a_step() {
  const auto input = in<int32_t>("input_tokens", {3}, {1, 7, 3}),
             output = in<int32_t>("output_tokens", {1, 3}, {7, 5, 6}),
             required = in<int32_t>("required_logit_indices", {3}, {10, 11, 12});
  const auto last_one = out<int64_t>("last_one_indices", {1}),
             mask = out<uint8_t>("accepted_tokens_mask", {3}),
             sampled = out<int64_t>("sampled_tokens", {1}),
             last_seq = out<int64_t>("last_accepted_seq", {1}),
             accepted = out<int64_t>("accepted_tokens", {1, 2}),
             counts = out<int64_t>("accepted_counts", {1}),
             to_release = out<int32_t>("blocks_to_release", {1}).optional(),
             remove = out<uint8_t>("remove_mask", {1}).optional(),
             released_ids = out<int32_t>("released_ids", {2}).optional(),
             num_released = out<int32_t>("num_released", {1}).optional();
  const auto decode = count_of("num_decode_requests", 1, 1),
             prefill = count_of("num_prefill_requests", 0, 0);
  const auto outputs = fields<heddle_speculative_step_outputs, SpeculativeStepOutputs>(
      last_one.optional(), mask.optional(), sampled.optional(), last_seq.optional(),
      accepted.optional(), counts.optional(), to_release, remove, released_ids, num_released,
      out<int64_t>("next_positions", {1, 2}).optional(),
      out<int64_t>("next_slots", {1, 2}).optional(), out<int64_t>("next_kv_lens", {1}).optional(),
      out<int64_t>("next_last_page_len", {1}).optional());
  return {
      row("verify_speculative_tokens", heddle_verify_speculative_tokens, verify_speculative_tokens,
          last_one, mask, input, output, decode, prefill, drafts_of(absent(), false))
          .refuses<4>("num_decode_requests is NULL", nullptr)
          .refuses<4>("num_decode_requests is 2, expected 0 to 1", heddle_count{2, nullptr})
          .refuses<6>("drafts is NULL", nullptr),
      row("prepare_next_forward_pass", heddle_prepare_next_forward_pass, prepare_next_forward_pass,
          sampled, last_seq, accepted, counts, output, required,
          in<int64_t>("last_one_indices", {1}, {1}),
          in<uint8_t>("accepted_tokens_mask", {3}, {1, 1, 0}), input, decode,
          drafts_of(absent(), true), both(true, PrepareOptions{true})),
      row("rewind_kv_cache", heddle_rewind_kv_cache, rewind_kv_cache,
          fields<heddle_released_blocks, ReleasedBlocks>(to_release, remove, released_ids,
                                                         num_released),
          block_state(), in<int64_t>("accepted_counts", {1}, {1}),
          in<int32_t>("prefill_status", {1}, {0}),
          made(
              [](auto*, DLTensor* t) {
                return heddle_drafts{2, t, false};
              },
              [](auto&, TensorView t) {
                return Drafts{2, t, false};
              },
              in<int32_t>("draft_indptr", {2}, {0, 2}).optional()),
          2, count_of("num_active", 1, 1))
          .refuses<1>("state is NULL", nullptr),
      row("rewind_kv_cache, defaults", heddle_rewind_kv_cache, rewind_kv_cache,
          both(nullptr, ReleasedBlocks()), block_state(), in<int64_t>("accepted_counts", {1}, {1}),
          in<int32_t>("prefill_status", {1}, {0}), drafts_of(absent(), false), 2,
          both(nullptr, Count())),
      row("speculative_step", heddle_speculative_step, speculative_step, outputs, block_state(),
          input, output, required.optional(), decode, prefill, drafts_of(absent(), false), 2,
          both(heddle_speculative_step_options{true, 2}, SpeculativeStepOptions{true, 2}))
          .refuses<0>("outputs is NULL", nullptr)};
}

/// One layer, two slots, one draft: request 0 has slot 1 and an accepted draft, request 1 no slot,
/// and request 2 is padding.
Row mamba_row() {
  const auto copy = [](int32_t num_states, bool has_states) {
    return [=](auto* context, auto* to0, auto* to1, auto* from0, auto* from1, auto*... rest) {
      DLTensor* const to[] = {to0, to1};
      const DLTensor* const from[] = {from0, from1};
      const auto [status, idx, counts, active] = std::tuple{rest...};
      return heddle_mamba_state_selective_copy(context, has_states ? to : nullptr, from, num_states,
                                               status, idx, counts, 1, active);
    };
  };
  std::vector<uint8_t> bytes(20);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = uint8_t(i);
  return row(
             "mamba_state_selective_copy", copy(2, true),
             [](auto& ctx, const auto& to0, const auto& to1, const auto& from0, const auto& from1,
                const auto& prefill, const auto& idx, const auto& counts, const auto& active) {
               const MambaState states[] = {{to0, from0}, {to1, from1}};
               mamba_state_selective_copy(ctx, states, prefill, idx, counts, 1, active);
             },
             in_place<float>("current_states[0]", {1, 2, 3}),
             in_place<uint8_t>("current_states[1]", {1, 2, 5}, std::vector<uint8_t>(10, 99)),
             in<float>("intermediate_states[0]", {1, 2, 2, 3}),
             in<uint8_t>("intermediate_states[1]", {1, 2, 2, 5}, bytes),
             in<int32_t>("prefill_status", {3}, {0, 0, 0}),
             in<int64_t>("state_idx", {3}, {1, -1, 0}),
             in<int64_t>("accepted_counts", {3}, {1, 0, 1}), count_of("num_active", 2, 1))
      .refuses_call("num_states is 9, expected 0 to 8", copy(9, true))
      .refuses_call("current_states is NULL", copy(2, false));
}

}  // namespace

std::vector<Row> speculation_rows() {
  std::vector<Row> rows = speculation_rows_of_a_step();
  const auto drafts = out<int32_t>("draft_tokens", {1, 2}),
             tokens = in<int32_t>("tokens", {1, 8}, {7, 8, 1, 7, 8, 2, 7, 8});
  const auto counts = out<int64_t>("num_drafts", {1}), lengths = in<int64_t>("lengths", {1}, {8});
  rows.push_back(row("propose_ngram_drafts, defaults", heddle_propose_ngram_drafts,
                     propose_ngram_drafts, drafts, counts, tokens, lengths, 2,
                     both(nullptr, Count()), both(nullptr, NgramOptions())));
  rows.push_back(row("propose_ngram_drafts, options", heddle_propose_ngram_drafts,
                     propose_ngram_drafts, drafts, counts, tokens, lengths, 2,
                     count_of("num_active", 1, 1),
                     both(heddle_ngram_options{1, 3, HEDDLE_NGRAM_LAST, 9},
                          NgramOptions{.match = NgramMatch::kLast, .max_length = 9}))
                     .refuses<6>("match is 5", heddle_ngram_options{1, 3, 5, 9}));
  rows.push_back(mamba_row());
  return rows;
}

}  // namespace heddle::testing
