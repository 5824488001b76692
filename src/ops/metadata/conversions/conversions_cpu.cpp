#include "ops/metadata/conversions/conversions_kernels.h"
#include "ops/metadata/index_runs.h"
#include "ops/metadata/ragged_rows.h"

namespace heddle::cpu::metadata {
namespace {

constexpr int64_t kSeqsPerScan = 1024;  // their starts lie on the stack

int64_t sequence_length(const ConstIndexList& input, const ConstIndexList& cache, int64_t seq) {
  return length_of(bounded(input[seq]) + bounded(cache[seq]));
}

/// The starts of a ragged tensor as offsets that cannot overflow.
auto starts_of(const ConstIndexList& cu) {
  return [cu](int64_t row) { return bounded(cu[row]); };
}

/// Calls piece(row, range) for all elements that `cu` places in [0, size).
template <class Piece>
void for_each_piece_of(const ExecContext& ctx, const ConstIndexList& cu, int64_t num_rows,
                       int64_t size, const Piece& piece) {
  const auto start = starts_of(cu);
  const int64_t begin = std::max<int64_t>(0, start(0)), end = std::min(start(num_rows), size);
  for_each_piece(ctx, num_rows, begin, end, kElementsPerTask, start, piece);
}

/// Fills what lies before the first row and after the last one.
void fill_outside(const ExecContext& ctx, const IndexList& to, int64_t begin, int64_t end,
                  const Fill& fill) {
  if (!fill.on) return;
  begin = std::clamp<int64_t>(begin, 0, to.size);
  end = std::clamp<int64_t>(end, begin, to.size);
  fill_run(to, 0, begin, fill.value);
  parallel_for(ctx, to.size - end, kElementsPerTask, [&](int64_t first, int64_t last) {
    fill_run(to, end + first, last - first, fill.value);
  });
}

}  // namespace

int64_t total_length(const ConstIndexList& input_lengths, const ConstIndexList& cache_lengths) {
  int64_t total = 0;
  for (int64_t i = 0; i < input_lengths.size; ++i) {
    total = bounded(total + sequence_length(input_lengths, cache_lengths, i));
  }
  return total;
}

void block_tables_to_ragged(const ExecContext& ctx, const BlockTablesToRaggedParams& p) {
  int64_t starts[kSeqsPerScan + 1];
  starts[0] = 0;
  for (int64_t first = 0; first < p.num_seqs; first += kSeqsPerScan) {
    const int64_t count = std::min(kSeqsPerScan, p.num_seqs - first);
    for (int64_t i = 0; i < count; ++i) {
      starts[i + 1] =
          bounded(starts[i] + sequence_length(p.input_lengths, p.cache_lengths, first + i));
    }
    for_each_piece(
        ctx, count, starts[0], std::min(starts[count], p.ragged.size), kElementsPerTask,
        [&](int64_t i) { return starts[i]; },
        [&](int64_t i, Range range) {
          copy_piece(p.ragged, starts[i], p.block_tables[first + i], 0, range, p.fill);
        });
    starts[0] = starts[count];
  }
  fill_outside(ctx, p.ragged, 0, starts[0], p.fill);
}

void block_tables_to_padded(const ExecContext& ctx, const BlockTablesToPaddedParams& p) {
  const auto start = starts_of(p.cu_seqlens);
  const int64_t width = p.block_tables.width;
  if (!p.fill.on) {
    for_each_piece_of(ctx, p.cu_seqlens, p.num_seqs, p.ragged.size, [&](int64_t row, Range range) {
      range.end = std::min(range.end, width);
      copy_piece(p.block_tables[row], 0, p.ragged, start(row), range, p.fill);
    });
    return;
  }
  // Every row is written whole, so rows balance.
  const int64_t grain = 1 + kElementsPerTask / std::max<int64_t>(width, 1);
  parallel_for(ctx, p.num_seqs, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const IndexList to = p.block_tables[row];
      const int64_t length = std::clamp<int64_t>(start(row + 1) - start(row), 0, width);
      copy_piece(to, 0, p.ragged, start(row), {0, length}, p.fill);
      fill_run(to, length, width - length, p.fill.value);
    }
  });
}

void copy_next_input_ids(const ExecContext& ctx, const CopyNextInputIdsParams& p) {
  const auto start = starts_of(p.cu_accepted_ids);
  const auto copy = [&](int64_t row, Range range) {
    const int64_t position = bounded(p.cache_lengths[row]) + bounded(p.input_lengths[row]);
    range.begin = std::max(range.begin, bounded(p.prompt_lengths[row]) - position);
    range = range.within(position, p.all_input_ids.width);
    copy_run(p.all_input_ids[row], position + range.begin, p.next_input_ids,
             start(row) + range.begin, range.length());
  };
  for_each_piece_of(ctx, p.cu_accepted_ids, p.num_seqs, p.next_input_ids.size, copy);
}

void prepare_position_slot_ids(const ExecContext& ctx, const PositionSlotIdsParams& p) {
  const auto start = starts_of(p.cu_seqlens);
  const auto count = [&](const IndexList& to, int64_t row, Range range, int64_t first) {
    range = range.within(start(row), to.size);
    count_run(to, start(row) + range.begin, range.length(), first + range.begin);
  };
  const int64_t size = std::max(p.position_ids.size, p.slot_indices.size);
  for_each_piece_of(ctx, p.cu_seqlens, p.num_seqs, size, [&](int64_t row, Range range) {
    const int64_t position = bounded(p.cache_lengths[row]);
    if (p.position_ids) count(p.position_ids, row, range, position);
    if (p.slot_indices) count(p.slot_indices, row, range, position + bounded(p.cu_slots[row]));
  });
}

void slots_filtering(const ExecContext& ctx, const SlotsFilteringParams& p) {
  const auto start = starts_of(p.cu_slots);
  for_each_piece_of(ctx, p.cu_slots, p.num_seqs, p.filtered_slots.size,
                    [&](int64_t row, Range range) {
                      copy_piece(p.filtered_slots, start(row), p.slots, bounded(p.slots_start[row]),
                                 range, p.fill);
                    });
  fill_outside(ctx, p.filtered_slots, start(0), start(p.num_seqs), p.fill);
}

}  // namespace heddle::cpu::metadata
