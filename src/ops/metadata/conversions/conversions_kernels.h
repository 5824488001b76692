#pragma once

#include "heddle/core/context.h"

#include "ops/metadata/indices.h"

namespace heddle {

struct BlockTablesToRaggedParams {
  IndexList ragged;
  ConstIndexTable block_tables;
  ConstIndexList input_lengths, cache_lengths;
  int64_t num_seqs;
  Fill fill;
};

struct BlockTablesToPaddedParams {
  IndexTable block_tables;
  ConstIndexList ragged, cu_seqlens;
  int64_t num_seqs;
  Fill fill;
};

struct CopyNextInputIdsParams {
  IndexTable all_input_ids;
  ConstIndexList next_input_ids, cu_accepted_ids, cache_lengths, input_lengths, prompt_lengths;
  int64_t num_seqs;
};

struct PositionSlotIdsParams {
  IndexList position_ids, slot_indices;  // either may be empty
  ConstIndexList cache_lengths, cu_seqlens, cu_slots;
  int64_t num_seqs;
};

struct SlotsFilteringParams {
  IndexList filtered_slots;
  ConstIndexList slots, cu_slots, slots_start;
  int64_t num_seqs;
  Fill fill;
};

static_assert(std::is_trivially_copyable_v<BlockTablesToRaggedParams>);

namespace cpu::metadata {

/// The sum of all lengths.
int64_t total_length(const ConstIndexList& input_lengths, const ConstIndexList& cache_lengths);

void block_tables_to_ragged(const ExecContext& ctx, const BlockTablesToRaggedParams& p);
void block_tables_to_padded(const ExecContext& ctx, const BlockTablesToPaddedParams& p);
void copy_next_input_ids(const ExecContext& ctx, const CopyNextInputIdsParams& p);
void prepare_position_slot_ids(const ExecContext& ctx, const PositionSlotIdsParams& p);
void slots_filtering(const ExecContext& ctx, const SlotsFilteringParams& p);

}  // namespace cpu::metadata

namespace cuda::metadata {

void block_tables_to_ragged(const ExecContext& ctx, const BlockTablesToRaggedParams& p);
void block_tables_to_padded(const ExecContext& ctx, const BlockTablesToPaddedParams& p);
void copy_next_input_ids(const ExecContext& ctx, const CopyNextInputIdsParams& p);
void prepare_position_slot_ids(const ExecContext& ctx, const PositionSlotIdsParams& p);
void slots_filtering(const ExecContext& ctx, const SlotsFilteringParams& p);

}  // namespace cuda::metadata
}  // namespace heddle
