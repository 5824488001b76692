#pragma once

#include <cstdint>
#include <optional>

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"

// Bookkeeping of a batch: integers alone, exact. Common to all ops of this header:
//   Every index, length and table tensor is i32 or i64, in any mix; any stride; offsets are
//   computed in 64 bits.
//   Lengths and starts (cu_x: part i of a ragged array is [cu_x[i], cu_x[i + 1])) are read where
//   the tensors lie and nothing else says how much is written, so a captured call may be replayed
//   with other contents. Lengths below 0 count as 0.
//   An entry whose source or destination lies outside its tensor is skipped: nothing is read or
//   written out of bounds.
//   Where starts descend, so that parts overlap, it is unspecified, and may differ from run to run,
//   of which of them an entry is.
//   With HEDDLE_VALIDATE=1 such an entry, or a start that descends, throws instead, with row and
//   value.
//   Entries that the formula does not reach stay as they are, or get fill_value where that is
//   given.
//   Any number of requests; none is legal. Outputs must not overlap inputs.

namespace heddle {

/// ragged[start(i) + j] = block_tables[i][j],   j < input_lengths[i] + cache_lengths[i]
///   start: the exclusive prefix sum of these lengths
///   ragged [>= the sum of all lengths]; block_tables [num_seqs, width]; input_lengths,
///   cache_lengths [num_seqs]
/// A row longer than the table's width keeps its room in `ragged`; the entries that the table lacks
/// are skipped. `total`, where given, is the sum that the caller has sized `ragged` for: another
/// sum is an error; on a GPU, where the call does not wait for the sum, only with
/// HEDDLE_VALIDATE=1. Source: the metadata kernels of LoRAX and TGI, as for the next four.
void block_tables_to_ragged(const ExecContext& ctx, TensorView ragged, ConstTensorView block_tables,
                            ConstTensorView input_lengths, ConstTensorView cache_lengths,
                            std::optional<int64_t> fill_value = std::nullopt,
                            std::optional<int64_t> total = std::nullopt);

/// block_tables[i][j] = ragged[cu_seqlens[i] + j]
///   for j < min(cu_seqlens[i + 1] - cu_seqlens[i], width)
///   block_tables [num_seqs, width]; ragged [any]; cu_seqlens [num_seqs + 1]
void block_tables_to_padded(const ExecContext& ctx, TensorView block_tables, ConstTensorView ragged,
                            ConstTensorView cu_seqlens,
                            std::optional<int64_t> fill_value = std::nullopt);

/// all_input_ids[i][p + j] = next_input_ids[cu_accepted_ids[i] + j]
///   p = cache_lengths[i] + input_lengths[i]
///   for j < cu_accepted_ids[i + 1] - cu_accepted_ids[i] with p + j >= prompt_lengths[i]: a prompt
///   is never overwritten
///   all_input_ids [num_seqs, max_length]; next_input_ids [any]; cu_accepted_ids [num_seqs + 1];
///   lengths [num_seqs]
void copy_next_input_ids_inplace(const ExecContext& ctx, TensorView all_input_ids,
                                 ConstTensorView next_input_ids, ConstTensorView cu_accepted_ids,
                                 ConstTensorView cache_lengths, ConstTensorView input_lengths,
                                 ConstTensorView prompt_lengths);

/// position_ids[cu_seqlens[i] + j] = cache_lengths[i] + j,   j < cu_seqlens[i + 1] - cu_seqlens[i]
/// slot_indices[cu_seqlens[i] + j] = cache_lengths[i] + j + cu_slots[i]
///   position_ids, slot_indices [any], either may be absent; cache_lengths [num_seqs]; cu_seqlens
///   [num_seqs + 1];
///   cu_slots [num_seqs] or [num_seqs + 1], absent without slot_indices
void prepare_position_slot_ids(const ExecContext& ctx, TensorView position_ids,
                               TensorView slot_indices, ConstTensorView cache_lengths,
                               ConstTensorView cu_seqlens, ConstTensorView cu_slots);

/// filtered_slots[cu_slots[i] + j] = slots[slots_start[i] + j],   j < cu_slots[i + 1] - cu_slots[i]
///   filtered_slots, slots [any]; cu_slots [num_seqs + 1], the starts in filtered_slots;
///   slots_start [num_seqs]
void slots_filtering(const ExecContext& ctx, TensorView filtered_slots, ConstTensorView slots,
                     ConstTensorView cu_slots, ConstTensorView slots_start,
                     std::optional<int64_t> fill_value = std::nullopt);

/// Bits of PrepareBatchOutputs::overflow: what did not fit and was cut off.
enum PrepareBatchOverflow : int32_t {
  kTokenOverflow = 1,    // more new tokens than rows of the token outputs
  kPageOverflow = 2,     // more pages than `pages` or a row of `page_table` holds
  kMissingPages = 4,     // a request is longer than its pages in the given tables
  kSegmentOverflow = 8,  // more runs of one adapter than segment outputs
};

/// What one step of a model needs to know of its batch. Any of these may be absent; nothing is
/// computed for those. Extents are capacities: what lies past the active requests, the last token,
/// page or segment is padded as said here.
struct PrepareBatchOutputs {
  // One entry per request. Padding: indptrs stay flat, lengths are 0.
  TensorView q_indptr;       // [num_seqs + 1]      first token
  TensorView start_lengths;  // [num_seqs]          tokens in the cache before this step
  TensorView kv_lengths;     // [num_seqs]          tokens in the cache with those of this step
  TensorView page_indptr;    // [num_seqs + 1]      first entry of `pages`
  TensorView last_page_len;  // [num_seqs]          1 to page_size; 0 of no page
  TensorView pages;          // [max_pages]         pages in use, ragged; padding: pad_page
  TensorView page_table;     // [num_seqs, width]   pages in use, padded with pad_page

  // One entry per new token, requests one after the other.
  TensorView positions;     // [num_tokens]   padding: 0
  TensorView kv_slots;      // [num_tokens]   page * page_size + place in the page; padding: -1
  TensorView token_to_seq;  // [num_tokens]   the request; padding: -1
  TensorView input_ids;     // [num_tokens]   padding: pad_token

  // Adapters, three forms of the same: slot_ids is for LoraBatch::from_ids, the segments are for
  // LoraBatch::from_segments.
  TensorView slot_ids;        // [num_tokens]     padding, and rows without an adapter: kNoAdapter
  TensorView seg_starts;      // [num_segments]   first row; padding: 0
  TensorView seg_ends;        // [num_segments]   after the last row; padding: 0, an empty segment
  TensorView seg_slots;       // [num_segments]   padding: kNoAdapter
  TensorView adapter_rows;    // [num_tokens]     rows with an adapter, by slot; padding: -1
  TensorView adapter_indptr;  // [num_slots + 1]  first entry of each slot in adapter_rows

  // In and out: ids of the requests by position; takes those that this step brings. Nothing else in
  // it is touched.
  TensorView all_input_ids;  // [num_seqs, max_length]

  TensorView overflow;  // [1]   PrepareBatchOverflow bits; 0 when everything fits
};

struct PrepareBatchInputs {
  ConstTensorView cache_lengths;     // [num_seqs]  tokens in the cache, without those just accepted
  ConstTensorView accepted_lengths;  // [num_seqs]  tokens of the last step that stay; absent: none
  ConstTensorView input_lengths;     // [num_seqs]  new tokens; absent: tokens_per_seq each
  ConstTensorView num_active;  // [1] or []   requests from here on are padding; absent: none is

  // Pages of the requests in one of two forms, or absent. A request may hold more pages than are in
  // use.
  ConstTensorView seq_page_table;   // [num_seqs, width]
  ConstTensorView seq_pages;        // [any], of request i from seq_page_indptr[i] on
  ConstTensorView seq_page_indptr;  // [num_seqs + 1]

  ConstTensorView adapter_slots;  // [num_seqs]  slot of each request's adapter; absent, < 0: none

  // Ids that this step brings, absent or both given: request i has those from next_indptr[i] on.
  ConstTensorView next_input_ids;  // [any]
  ConstTensorView next_indptr;     // [num_seqs + 1]
  ConstTensorView prompt_lengths;  // [num_seqs]  positions below it keep their id; absent: 0

  int64_t page_size = 0;       // at least 1 where pages are given or requested
  int64_t tokens_per_seq = 1;  // new tokens of each request, without input_lengths
  int64_t accepted_extra = 0;  // added to each accepted length: 1 where they count drafts alone
  int64_t pad_page = -1;
  int64_t pad_token = 0;
};

/// All metadata of a step in one pass. Of request i < num_active:
///   start(i) = cache_lengths[i] + accepted_lengths[i] + accepted_extra
///              (the last two where accepted_lengths is given)
///   n(i)     = its new tokens, cut where the token outputs are full;   q_indptr = prefix sum of n
///   used(i)  = ceil((start(i) + n(i)) / page_size), cut to what its row of the given tables holds,
///              to the width of the output page_table, and where the output `pages` is full
///   page_indptr      = prefix sum of used
///   kv(i)            = min(start(i) + n(i), used(i) * page_size)
///   last_page_len(i) = kv(i) - (used(i) - 1) * page_size
/// so q_indptr and {page_indptr, pages, last_page_len} are what attention.h takes, and index
/// nothing out of bounds whatever the lengths are. Token j of request i, row q_indptr[i] + j, has
/// position p = start(i) + j. Its kv_slot is -1 where the given tables lack the page. Its id is
/// next_input_ids[next_indptr[i] + j] where that exists and p >= prompt_lengths[i], and is then
/// stored at all_input_ids[i][p], too; else all_input_ids[i][p]; pad_token where neither exists.
/// Segments are the runs of rows with one adapter, over requests; rows without one are in none.
/// num_seqs segments suffice.
/// An adapter at or above num_slots counts as none where adapter_indptr gives num_slots.
/// Without page_size nothing is known of pages: kv(i) = start(i) + n(i).
void prepare_batch(const ExecContext& ctx, const PrepareBatchOutputs& outputs,
                   const PrepareBatchInputs& inputs);

}  // namespace heddle
