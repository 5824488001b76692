#include "heddle/ops/metadata.h"

#include "capi/convert.h"
#include "capi/guard.h"

using heddle::capi::guard;
using heddle::capi::in;
using heddle::capi::in_or_absent;
using heddle::capi::out;
using heddle::capi::out_or_absent;
using heddle::capi::required;

static_assert(int{HEDDLE_TOKEN_OVERFLOW} == heddle::kTokenOverflow &&
              int{HEDDLE_PAGE_OVERFLOW} == heddle::kPageOverflow &&
              int{HEDDLE_MISSING_PAGES} == heddle::kMissingPages &&
              int{HEDDLE_SEGMENT_OVERFLOW} == heddle::kSegmentOverflow);

namespace {

std::optional<int64_t> value_of(const int64_t* value) {
  return value == nullptr ? std::nullopt : std::optional<int64_t>(*value);
}

heddle::PrepareBatchOutputs outputs_of(const heddle_prepare_batch_outputs& o) {
  return {.q_indptr = out_or_absent("q_indptr", o.q_indptr),
          .start_lengths = out_or_absent("start_lengths", o.start_lengths),
          .kv_lengths = out_or_absent("kv_lengths", o.kv_lengths),
          .page_indptr = out_or_absent("page_indptr", o.page_indptr),
          .last_page_len = out_or_absent("last_page_len", o.last_page_len),
          .pages = out_or_absent("pages", o.pages),
          .page_table = out_or_absent("page_table", o.page_table),
          .positions = out_or_absent("positions", o.positions),
          .kv_slots = out_or_absent("kv_slots", o.kv_slots),
          .token_to_seq = out_or_absent("token_to_seq", o.token_to_seq),
          .input_ids = out_or_absent("input_ids", o.input_ids),
          .slot_ids = out_or_absent("slot_ids", o.slot_ids),
          .seg_starts = out_or_absent("seg_starts", o.seg_starts),
          .seg_ends = out_or_absent("seg_ends", o.seg_ends),
          .seg_slots = out_or_absent("seg_slots", o.seg_slots),
          .adapter_rows = out_or_absent("adapter_rows", o.adapter_rows),
          .adapter_indptr = out_or_absent("adapter_indptr", o.adapter_indptr),
          .all_input_ids = out_or_absent("all_input_ids", o.all_input_ids),
          .overflow = out_or_absent("overflow", o.overflow)};
}

heddle::PrepareBatchInputs inputs_of(const heddle_prepare_batch_inputs& i) {
  return {.cache_lengths = in("cache_lengths", i.cache_lengths),
          .accepted_lengths = in_or_absent("accepted_lengths", i.accepted_lengths),
          .input_lengths = in_or_absent("input_lengths", i.input_lengths),
          .num_active = in_or_absent("num_active", i.num_active),
          .seq_page_table = in_or_absent("seq_page_table", i.seq_page_table),
          .seq_pages = in_or_absent("seq_pages", i.seq_pages),
          .seq_page_indptr = in_or_absent("seq_page_indptr", i.seq_page_indptr),
          .adapter_slots = in_or_absent("adapter_slots", i.adapter_slots),
          .next_input_ids = in_or_absent("next_input_ids", i.next_input_ids),
          .next_indptr = in_or_absent("next_indptr", i.next_indptr),
          .prompt_lengths = in_or_absent("prompt_lengths", i.prompt_lengths),
          .page_size = i.page_size,
          .tokens_per_seq = i.tokens_per_seq,
          .accepted_extra = i.accepted_extra,
          .pad_page = i.pad_page,
          .pad_token = i.pad_token};
}

}  // namespace

heddle_status heddle_block_tables_to_ragged(heddle_context* context, DLTensor* ragged,
                                            const DLTensor* block_tables,
                                            const DLTensor* input_lengths,
                                            const DLTensor* cache_lengths,
                                            const int64_t* fill_value, const int64_t* total) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::block_tables_to_ragged(ctx, out("ragged", ragged), in("block_tables", block_tables),
                                   in("input_lengths", input_lengths),
                                   in("cache_lengths", cache_lengths), value_of(fill_value),
                                   value_of(total));
  });
}

heddle_status heddle_block_tables_to_padded(heddle_context* context, DLTensor* block_tables,
                                            const DLTensor* ragged, const DLTensor* cu_seqlens,
                                            const int64_t* fill_value) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::block_tables_to_padded(ctx, out("block_tables", block_tables), in("ragged", ragged),
                                   in("cu_seqlens", cu_seqlens), value_of(fill_value));
  });
}

heddle_status heddle_copy_next_input_ids_inplace(heddle_context* context, DLTensor* all_input_ids,
                                                 const DLTensor* next_input_ids,
                                                 const DLTensor* cu_accepted_ids,
                                                 const DLTensor* cache_lengths,
                                                 const DLTensor* input_lengths,
                                                 const DLTensor* prompt_lengths) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::copy_next_input_ids_inplace(
        ctx, out("all_input_ids", all_input_ids), in("next_input_ids", next_input_ids),
        in("cu_accepted_ids", cu_accepted_ids), in("cache_lengths", cache_lengths),
        in("input_lengths", input_lengths), in("prompt_lengths", prompt_lengths));
  });
}

heddle_status heddle_prepare_position_slot_ids(heddle_context* context, DLTensor* position_ids,
                                               DLTensor* slot_indices,
                                               const DLTensor* cache_lengths,
                                               const DLTensor* cu_seqlens,
                                               const DLTensor* cu_slots) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::prepare_position_slot_ids(
        ctx, out_or_absent("position_ids", position_ids),
        out_or_absent("slot_indices", slot_indices), in("cache_lengths", cache_lengths),
        in("cu_seqlens", cu_seqlens), in_or_absent("cu_slots", cu_slots));
  });
}

heddle_status heddle_slots_filtering(heddle_context* context, DLTensor* filtered_slots,
                                     const DLTensor* slots, const DLTensor* cu_slots,
                                     const DLTensor* slots_start, const int64_t* fill_value) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::slots_filtering(ctx, out("filtered_slots", filtered_slots), in("slots", slots),
                            in("cu_slots", cu_slots), in("slots_start", slots_start),
                            value_of(fill_value));
  });
}

void heddle_prepare_batch_outputs_init(heddle_prepare_batch_outputs* outputs) { *outputs = {}; }

void heddle_prepare_batch_inputs_init(heddle_prepare_batch_inputs* inputs) {
  const heddle::PrepareBatchInputs defaults;
  *inputs = {};
  inputs->page_size = defaults.page_size;
  inputs->tokens_per_seq = defaults.tokens_per_seq;
  inputs->accepted_extra = defaults.accepted_extra;
  inputs->pad_page = defaults.pad_page;
  inputs->pad_token = defaults.pad_token;
}

heddle_status heddle_prepare_batch(heddle_context* context,
                                   const heddle_prepare_batch_outputs* outputs,
                                   const heddle_prepare_batch_inputs* inputs) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::prepare_batch(ctx, outputs_of(required("outputs", outputs)),
                          inputs_of(required("inputs", inputs)));
  });
}
