#include "heddle/ops/speculation.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <nanobind/stl/optional.h>

#include "bindings/call.h"
#include "bindings/count.h"
#include "bindings/new_array.h"

namespace heddle::python {
namespace {

using namespace nb::literals;

/// Placeholders are compared in uniform batches, as published, and rejected in ragged ones, unless
/// the caller says so.
Drafts drafts_of(Call& call, int64_t num_speculative_tokens, nb::handle draft_indptr,
                 std::optional<bool> reject_placeholders) {
  const ConstTensorView indptr = call.optional_in("draft_indptr", draft_indptr);
  return {.num_speculative_tokens = num_speculative_tokens,
          .indptr = indptr,
          .reject_placeholders = reject_placeholders.value_or(static_cast<bool>(indptr))};
}

KvBlockState state_of(Call& call, nb::handle last_kv_block_offset, nb::handle kv_length_offsets,
                      nb::handle kv_block_counts, nb::handle last_kv_block_id,
                      nb::handle kv_block_ids) {
  return {.last_kv_block_offset = call.out("last_kv_block_offset", last_kv_block_offset),
          .kv_length_offsets = call.out("kv_length_offsets", kv_length_offsets),
          .kv_block_counts = call.out("kv_block_counts", kv_block_counts),
          .last_kv_block_id = call.out("last_kv_block_id", last_kv_block_id),
          .kv_block_ids = call.out("kv_block_ids", kv_block_ids)};
}

ReleasedBlocks released_of(Call& call, nb::handle blocks_to_release, nb::handle remove_mask,
                           nb::handle released_ids, nb::handle num_released) {
  return {.blocks_to_release = call.optional_out("blocks_to_release", blocks_to_release),
          .remove_mask = call.optional_out("remove_mask", remove_mask),
          .released_ids = call.optional_out("released_ids", released_ids),
          .num_released = call.optional_out("num_released", num_released)};
}

void verify(nb::handle last_one_indices, nb::handle accepted_tokens_mask, nb::handle input_tokens,
            nb::handle output_tokens, nb::handle num_decode_requests,
            nb::handle num_prefill_requests, int64_t num_speculative_tokens,
            nb::handle draft_indptr, std::optional<bool> reject_placeholders) {
  Call call;
  const TensorView last_ones = call.out("last_one_indices", last_one_indices);
  const TensorView mask = call.out("accepted_tokens_mask", accepted_tokens_mask);
  const ConstTensorView input = call.in("input_tokens", input_tokens);
  const ConstTensorView output = call.in("output_tokens", output_tokens);
  const Count decode = count_of(call, "num_decode_requests", num_decode_requests);
  const Count prefill = count_of(call, "num_prefill_requests", num_prefill_requests);
  const Drafts drafts = drafts_of(call, num_speculative_tokens, draft_indptr, reject_placeholders);
  call.run([&](const ExecContext& ctx) {
    verify_speculative_tokens(ctx, last_ones, mask, input, output, decode, prefill, drafts);
  });
}

void prepare(nb::handle sampled_tokens, nb::handle last_accepted_seq, nb::handle accepted_tokens,
             nb::handle accepted_counts, nb::handle output_tokens,
             nb::handle required_logit_indices, nb::handle last_one_indices,
             nb::handle accepted_tokens_mask, nb::handle input_tokens,
             nb::handle num_decode_requests, int64_t num_speculative_tokens,
             nb::handle draft_indptr, bool write_prefill_rows) {
  Call call;
  const TensorView sampled = call.out("sampled_tokens", sampled_tokens);
  const TensorView last_seq = call.out("last_accepted_seq", last_accepted_seq);
  const TensorView tokens = call.out("accepted_tokens", accepted_tokens);
  const TensorView counts = call.out("accepted_counts", accepted_counts);
  const ConstTensorView output = call.in("output_tokens", output_tokens);
  const ConstTensorView required = call.in("required_logit_indices", required_logit_indices);
  const ConstTensorView last_ones = call.in("last_one_indices", last_one_indices);
  const ConstTensorView mask = call.in("accepted_tokens_mask", accepted_tokens_mask);
  const ConstTensorView input = call.in("input_tokens", input_tokens);
  const Count decode = count_of(call, "num_decode_requests", num_decode_requests);
  const Drafts drafts = drafts_of(call, num_speculative_tokens, draft_indptr, std::nullopt);
  call.run([&](const ExecContext& ctx) {
    prepare_next_forward_pass(ctx, sampled, last_seq, tokens, counts, output, required, last_ones,
                              mask, input, decode, drafts,
                              {.write_prefill_rows = write_prefill_rows});
  });
}

void rewind(nb::handle blocks_to_release, nb::handle remove_mask, nb::handle last_kv_block_offset,
            nb::handle kv_length_offsets, nb::handle kv_block_counts, nb::handle last_kv_block_id,
            nb::handle kv_block_ids, nb::handle accepted_counts, nb::handle prefill_status,
            int64_t num_speculative_tokens, int64_t block_size_tokens, nb::handle num_active,
            nb::handle draft_indptr, nb::handle released_ids, nb::handle num_released) {
  Call call;
  const ReleasedBlocks released =
      released_of(call, blocks_to_release, remove_mask, released_ids, num_released);
  const KvBlockState state = state_of(call, last_kv_block_offset, kv_length_offsets,
                                      kv_block_counts, last_kv_block_id, kv_block_ids);
  const ConstTensorView accepted = call.in("accepted_counts", accepted_counts);
  const ConstTensorView prefill = call.in("prefill_status", prefill_status);
  const Drafts drafts = drafts_of(call, num_speculative_tokens, draft_indptr, std::nullopt);
  const Count active = count_of(call, "num_active", num_active);
  call.run([&](const ExecContext& ctx) {
    rewind_kv_cache(ctx, released, state, accepted, prefill, drafts, block_size_tokens, active);
  });
}

void step(nb::handle last_kv_block_offset, nb::handle kv_length_offsets, nb::handle kv_block_counts,
          nb::handle last_kv_block_id, nb::handle kv_block_ids, nb::handle input_tokens,
          nb::handle output_tokens, nb::handle num_decode_requests, nb::handle num_prefill_requests,
          int64_t num_speculative_tokens, int64_t block_size_tokens,
          nb::handle required_logit_indices, nb::handle draft_indptr,
          std::optional<bool> reject_placeholders, nb::handle last_one_indices,
          nb::handle accepted_tokens_mask, nb::handle sampled_tokens, nb::handle last_accepted_seq,
          nb::handle accepted_tokens, nb::handle accepted_counts, nb::handle blocks_to_release,
          nb::handle remove_mask, nb::handle released_ids, nb::handle num_released,
          nb::handle next_positions, nb::handle next_slots, nb::handle next_kv_lens,
          nb::handle next_last_page_len, bool write_prefill_rows, int64_t num_next_tokens) {
  Call call;
  const SpeculativeStepOutputs outputs{
      .last_one_indices = call.optional_out("last_one_indices", last_one_indices),
      .accepted_tokens_mask = call.optional_out("accepted_tokens_mask", accepted_tokens_mask),
      .sampled_tokens = call.optional_out("sampled_tokens", sampled_tokens),
      .last_accepted_seq = call.optional_out("last_accepted_seq", last_accepted_seq),
      .accepted_tokens = call.optional_out("accepted_tokens", accepted_tokens),
      .accepted_counts = call.optional_out("accepted_counts", accepted_counts),
      .released = released_of(call, blocks_to_release, remove_mask, released_ids, num_released),
      .next_positions = call.optional_out("next_positions", next_positions),
      .next_slots = call.optional_out("next_slots", next_slots),
      .next_kv_lens = call.optional_out("next_kv_lens", next_kv_lens),
      .next_last_page_len = call.optional_out("next_last_page_len", next_last_page_len)};
  const KvBlockState state = state_of(call, last_kv_block_offset, kv_length_offsets,
                                      kv_block_counts, last_kv_block_id, kv_block_ids);
  const ConstTensorView input = call.in("input_tokens", input_tokens);
  const ConstTensorView output = call.in("output_tokens", output_tokens);
  const ConstTensorView required =
      call.optional_in("required_logit_indices", required_logit_indices);
  const Count decode = count_of(call, "num_decode_requests", num_decode_requests);
  const Count prefill = count_of(call, "num_prefill_requests", num_prefill_requests);
  const Drafts drafts = drafts_of(call, num_speculative_tokens, draft_indptr, reject_placeholders);
  call.run([&](const ExecContext& ctx) {
    speculative_step(
        ctx, outputs, state, input, output, required, decode, prefill, drafts, block_size_tokens,
        {.write_prefill_rows = write_prefill_rows, .num_next_tokens = num_next_tokens});
  });
}

// As Megatron-LM has them, with their results in new arrays of the framework of the arguments: the
// eager calls of heddle.compat.megatron.mtp_utils.

using TwoArrays = nb::typed<nb::tuple, nb::object, nb::object>;
using ThreeArrays = nb::typed<nb::tuple, nb::object, nb::object, nb::object>;

TwoArrays megatron_rewind(nb::handle accepted_counts, nb::handle prefill_status,
                          nb::handle last_kv_block_offset, nb::handle kv_length_offsets,
                          nb::handle kv_block_counts, nb::handle last_kv_block_id,
                          nb::handle kv_block_ids, int64_t num_speculative_tokens,
                          int64_t block_size_tokens, nb::handle num_active_requests) {
  Call call;
  const ConstTensorView accepted = call.in("accepted_counts", accepted_counts);
  const ConstTensorView prefill = call.in("prefill_status", prefill_status);
  const KvBlockState state = state_of(call, last_kv_block_offset, kv_length_offsets,
                                      kv_block_counts, last_kv_block_id, kv_block_ids);
  const TensorView& ids = state.last_kv_block_id;
  nb::object blocks = new_array(last_kv_block_id, call.device(), ids.shape(),
                                ids.dtype() == DType::kInt32 ? DType::kInt32 : DType::kInt64);
  nb::object mask = new_array(accepted_counts, call.device(), accepted.shape(), DType::kBool);
  const ReleasedBlocks released{.blocks_to_release = call.out("blocks_to_release", blocks),
                                .remove_mask = call.out("remove_mask", mask)};
  const Count active = count_of(call, "num_active_requests", num_active_requests);
  call.run([&](const ExecContext& ctx) {
    rewind_kv_cache(ctx, released, state, accepted, prefill,
                    Drafts::uniform(num_speculative_tokens), block_size_tokens, active);
  });
  return nb::make_tuple(std::move(blocks), std::move(mask));
}

ThreeArrays megatron_verify(nb::object input_tokens, nb::handle output_tokens,
                            int64_t num_decode_requests, int64_t num_prefill_requests,
                            int64_t num_speculative_tokens) {
  Call call;
  ConstTensorView input = call.in("input_tokens", input_tokens);
  if (input.rank() == 2 && input.size(0) == 1) {
    input_tokens = input_tokens[nb::int_(0)];
    input = call.in("input_tokens", input_tokens);
  }
  const ConstTensorView output = call.in("output_tokens", output_tokens);
  int64_t requests = 0;
  if (__builtin_add_overflow(num_decode_requests, num_prefill_requests, &requests)) requests = 0;
  const std::array<int64_t, 1> each_request{std::max<int64_t>(requests, 0)};
  nb::object last_ones = new_array(input_tokens, call.device(), each_request, DType::kInt64);
  nb::object mask = new_array(input_tokens, call.device(), input.shape(), DType::kBool);
  const TensorView last_ones_view = call.out("last_one_indices", last_ones);
  const TensorView mask_view = call.out("accepted_tokens_mask", mask);
  call.run([&](const ExecContext& ctx) {
    verify_speculative_tokens(ctx, last_ones_view, mask_view, input, output, num_decode_requests,
                              num_prefill_requests, Drafts::uniform(num_speculative_tokens));
  });
  return nb::make_tuple(std::move(last_ones), std::move(mask), std::move(input_tokens));
}

NgramMatch match_of(std::string_view match) {
  if (match == "first") return NgramMatch::kFirst;
  if (match == "last") return NgramMatch::kLast;
  throw nb::value_error(
      ("match is \"" + std::string(match) + "\", expected \"first\" or \"last\"").c_str());
}

void propose_ngrams(nb::handle draft_tokens, nb::handle num_drafts, nb::handle tokens,
                    nb::handle lengths, int64_t num_speculative_tokens, nb::handle num_active,
                    int64_t min_ngram, int64_t max_ngram, const char* match, int64_t max_length) {
  Call call;
  const TensorView drafts = call.out("draft_tokens", draft_tokens);
  const TensorView counts = call.out("num_drafts", num_drafts);
  const ConstTensorView from = call.in("tokens", tokens);
  const ConstTensorView held = call.in("lengths", lengths);
  const Count active = count_of(call, "num_active", num_active);
  const NgramOptions options{min_ngram, max_ngram, match_of(match), max_length};
  call.run([&](const ExecContext& ctx) {
    propose_ngram_drafts(ctx, drafts, counts, from, held, num_speculative_tokens, active, options);
  });
}

}  // namespace

void bind_speculation(nb::module_& m) {
  constexpr SpeculativeStepOptions kDefaults;

  m.def("verify_speculative_tokens", &verify, "last_one_indices"_a, "accepted_tokens_mask"_a,
        "input_tokens"_a, "output_tokens"_a, "num_decode_requests"_a, "num_prefill_requests"_a,
        "num_speculative_tokens"_a, nb::kw_only(), "draft_indptr"_a = nb::none(),
        "reject_placeholders"_a = nb::none());

  m.def("prepare_next_forward_pass", &prepare, "sampled_tokens"_a, "last_accepted_seq"_a,
        "accepted_tokens"_a, "accepted_counts"_a, "output_tokens"_a, "required_logit_indices"_a,
        "last_one_indices"_a, "accepted_tokens_mask"_a, "input_tokens"_a, "num_decode_requests"_a,
        "num_speculative_tokens"_a, nb::kw_only(), "draft_indptr"_a = nb::none(),
        "write_prefill_rows"_a = false);

  m.def("rewind_kv_cache", &rewind, "blocks_to_release"_a.none(), "remove_mask"_a.none(),
        "last_kv_block_offset"_a, "kv_length_offsets"_a, "kv_block_counts"_a, "last_kv_block_id"_a,
        "kv_block_ids"_a, "accepted_counts"_a, "prefill_status"_a, "num_speculative_tokens"_a,
        "block_size_tokens"_a, "num_active"_a = nb::none(), nb::kw_only(),
        "draft_indptr"_a = nb::none(), "released_ids"_a = nb::none(),
        "num_released"_a = nb::none());

  m.def("megatron_rewind_kv_cache", &megatron_rewind, "accepted_counts"_a, "prefill_status"_a,
        "last_kv_block_offset"_a, "kv_length_offsets"_a, "kv_block_counts"_a, "last_kv_block_id"_a,
        "kv_block_ids"_a, "num_speculative_tokens"_a, "block_size_tokens"_a,
        "num_active_requests"_a = nb::none());

  m.def("megatron_verify_speculative_tokens", &megatron_verify, "input_tokens"_a, "output_tokens"_a,
        "num_decode_requests"_a, "num_prefill_requests"_a, "num_speculative_tokens"_a);

  m.def("speculative_step", &step, "last_kv_block_offset"_a, "kv_length_offsets"_a,
        "kv_block_counts"_a, "last_kv_block_id"_a, "kv_block_ids"_a, "input_tokens"_a,
        "output_tokens"_a, "num_decode_requests"_a, "num_prefill_requests"_a,
        "num_speculative_tokens"_a, "block_size_tokens"_a, nb::kw_only(),
        "required_logit_indices"_a = nb::none(), "draft_indptr"_a = nb::none(),
        "reject_placeholders"_a = nb::none(), "last_one_indices"_a = nb::none(),
        "accepted_tokens_mask"_a = nb::none(), "sampled_tokens"_a = nb::none(),
        "last_accepted_seq"_a = nb::none(), "accepted_tokens"_a = nb::none(),
        "accepted_counts"_a = nb::none(), "blocks_to_release"_a = nb::none(),
        "remove_mask"_a = nb::none(), "released_ids"_a = nb::none(), "num_released"_a = nb::none(),
        "next_positions"_a = nb::none(), "next_slots"_a = nb::none(), "next_kv_lens"_a = nb::none(),
        "next_last_page_len"_a = nb::none(), "write_prefill_rows"_a = kDefaults.write_prefill_rows,
        "num_next_tokens"_a = kDefaults.num_next_tokens);

  constexpr NgramOptions kNgram;
  m.def("propose_ngram_drafts", &propose_ngrams, "draft_tokens"_a, "num_drafts"_a, "tokens"_a,
        "lengths"_a, "num_speculative_tokens"_a, "num_active"_a = nb::none(), nb::kw_only(),
        "min_ngram"_a = kNgram.min_ngram, "max_ngram"_a = kNgram.max_ngram, "match"_a = "first",
        "max_length"_a = kNgram.max_length);
}

}  // namespace heddle::python
