#include <algorithm>
#include <string_view>
#include <type_traits>

#include "cuda/check.h"

#include "core/kernel_log.h"
#include "ops/metadata/conversions/conversions_kernels.h"
#include "ops/metadata/ragged_rows_cuda.h"

// One launch each, of blocks that have kRowThreads threads and a chunk of the ragged array
// (ragged_rows_cuda.h). Of a row [start, end), element `start + j` becomes:

namespace heddle::cuda::metadata {
namespace {

/// block_tables[row][j]
struct ToPadded {
  const BlockTablesToPaddedParams& p;

  struct Facts {};
  __device__ Facts facts(int64_t, bool) const { return {}; }
  __device__ RowSpan span(int64_t row, int64_t start, int64_t end, Facts) const {
    return {start, smaller(end, start + p.block_tables.width),
            row * p.block_tables.row_step_bytes() - start * p.block_tables.step_bytes()};
  }
  __device__ ElementCopies<false> copies(int64_t first) const {
    const IndexTable& t = p.block_tables;
    return {{t, first}, {p.ragged, first}};
  }
};

/// all_input_ids[row][cache_lengths[row] + input_lengths[row] + j], behind the prompt
struct CopyNext {
  const CopyNextInputIdsParams& p;

  struct Facts {
    LoadedIndex cache, input, prompt;
  };
  __device__ Facts facts(int64_t row, bool in_range) const {
    return {load_input(p.cache_lengths, row, in_range), load_input(p.input_lengths, row, in_range),
            load_input(p.prompt_lengths, row, in_range)};
  }
  __device__ RowSpan span(int64_t row, int64_t start, int64_t end, const Facts& f) const {
    const int64_t shift =
        bounded(f.cache.value()) + bounded(f.input.value()) - start;  // to a position
    return {larger(start, larger(bounded(f.prompt.value()), 0) - shift),
            smaller(end, p.all_input_ids.width - shift),
            row * p.all_input_ids.row_step_bytes() + shift * p.all_input_ids.step_bytes()};
  }
  __device__ ElementCopies<false> copies(int64_t first) const {
    const IndexTable& t = p.all_input_ids;
    return {{t, first}, {p.next_input_ids, first}};
  }
};

/// filtered_slots[start + j] = slots[slots_start[row] + j]
struct FilterSlots {
  const SlotsFilteringParams& p;

  struct Facts {
    LoadedIndex from;
  };
  __device__ Facts facts(int64_t row, bool in_range) const {
    return {load_input(p.slots_start, row, in_range)};
  }
  __device__ RowSpan span(int64_t, int64_t start, int64_t end, const Facts& f) const {
    const int64_t shift = bounded(f.from.value()) - start;
    return {larger(start, -shift), smaller(end, p.slots.size - shift),
            shift * p.slots.step_bytes()};
  }
  __device__ ElementCopies<true> copies(int64_t first) const {
    return {{p.filtered_slots, first}, {p.slots, first}, p.fill};
  }
};

/// position_ids[start + j] = cache_lengths[row] + j; slot_indices the same and cu_slots[row] more
struct PositionSlots {
  const PositionSlotIdsParams& p;
  int64_t* slot_shifts;  // [kRowThreads], in shared memory

  struct Facts {
    LoadedIndex cache, slot;
  };
  __device__ Facts facts(int64_t row, bool in_range) const {
    return {load_input(p.cache_lengths, row, in_range),
            load_input(p.cu_slots, row, in_range && p.slot_indices.size > 0)};
  }
  __device__ RowSpan span(int64_t, int64_t start, int64_t end, const Facts& f) const {
    const int64_t shift = bounded(f.cache.value()) - start;
    slot_shifts[threadIdx.x] = shift + bounded(f.slot.value());
    return {start, end, shift};
  }
};
struct PositionSlotCopies {
  const PositionSlotIdsParams& p;
  const int64_t* slot_shifts;
  int64_t first;

  __device__ LoadedIndex fetch(int, int row, int64_t, bool) const {
    return LoadedIndex::of(slot_shifts[row]);
  }
  __device__ void put(int x, int64_t shift, bool is_copied, const LoadedIndex& slot_shift) const {
    const int64_t element = first + x;
    if (!is_copied) return;
    if (element < p.position_ids.size) p.position_ids.set(element, element + shift);
    if (element < p.slot_indices.size) p.slot_indices.set(element, element + slot_shift.value());
  }
};

template <int kPerThread>
__global__ void __launch_bounds__(kRowThreads)
    to_padded_kernel(const __grid_constant__ BlockTablesToPaddedParams p) {
  __shared__ RowWindow window;
  const Chunk chunk = Chunk::of_block(p.ragged.size, kPerThread);
  const ToPadded op{p};
  write_chunk<kPerThread>(op, op.copies(chunk.first), p.cu_seqlens, p.num_seqs, chunk, window);
}
template <int kPerThread>
__global__ void __launch_bounds__(kRowThreads)
    copy_next_kernel(const __grid_constant__ CopyNextInputIdsParams p) {
  __shared__ RowWindow window;
  const Chunk chunk = Chunk::of_block(p.next_input_ids.size, kPerThread);
  const CopyNext op{p};
  write_chunk<kPerThread>(op, op.copies(chunk.first), p.cu_accepted_ids, p.num_seqs, chunk, window);
}
template <int kPerThread>
__global__ void __launch_bounds__(kRowThreads)
    position_slots_kernel(const __grid_constant__ PositionSlotIdsParams p) {
  __shared__ RowWindow window;
  __shared__ int64_t slot_shifts[kRowThreads];  // [rows of the window]
  const Chunk chunk = Chunk::of_block(larger(p.position_ids.size, p.slot_indices.size), kPerThread);
  const PositionSlotCopies copies{p, slot_shifts, chunk.first};
  write_chunk<kPerThread>(PositionSlots{p, slot_shifts}, copies, p.cu_seqlens, p.num_seqs, chunk,
                          window);
}
template <int kPerThread>
__global__ void __launch_bounds__(kRowThreads)
    filter_slots_kernel(const __grid_constant__ SlotsFilteringParams p) {
  __shared__ RowWindow window;
  const Chunk chunk = Chunk::of_block(p.filtered_slots.size, kPerThread);
  const FilterSlots op{p};
  write_chunk<kPerThread>(op, op.copies(chunk.first), p.cu_slots, p.num_seqs, chunk, window);
}

// block_tables whole: each element gets its entry of `ragged` or the fill value, so elements
// balance and nothing is searched.
template <int kPerThread>
__global__ void __launch_bounds__(kRowThreads)
    to_filled_padded_kernel(const __grid_constant__ BlockTablesToPaddedParams p) {
  const int64_t width = p.block_tables.width;
  const Chunk chunk = Chunk::of_block(p.num_seqs * width, kPerThread);
  LoadedIndex value[kPerThread];
  int64_t row[kPerThread];
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    const int x = k * kRowThreads + static_cast<int>(threadIdx.x);
    if (x >= chunk.size) continue;
    row[k] = divide_nonnegative(chunk.first + x, width);
    const int64_t j = chunk.first + x - row[k] * width,
                  start = bounded(load_input(p.cu_seqlens, row[k]).value()),
                  end = bounded(load_input(p.cu_seqlens, row[k] + 1).value()), from = start + j;
    const bool in_range = from < end && from >= 0 && from < p.ragged.size;
    value[k] = in_range ? load_input(p.ragged, from) : LoadedIndex::of(p.fill.value);
  }
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    const int x = k * kRowThreads + static_cast<int>(threadIdx.x);
    if (x < chunk.size) {
      p.block_tables[row[k]].set(chunk.first + x - row[k] * width, value[k].value());
    }
  }
}

// ragged[start(i) + j] = block_tables[i][j]. Every block adds up all lengths in front of its
// chunk's end, kRowThreads rows at a time: that is cheaper than to wait for another block, and no
// block waits.
template <int kPerThread>
__global__ void __launch_bounds__(kRowThreads)
    to_ragged_kernel(const __grid_constant__ BlockTablesToRaggedParams p) {
  __shared__ RowWindow window;
  __shared__ Sums<1> scratch[kMaxWarps];                // [warps]
  __shared__ uint32_t small_scratch[kRowThreads / 32];  // [warps]
  const Chunk chunk = Chunk::of_block(p.ragged.size, kPerThread);
  const ConstIndexTable& t = p.block_tables;
  const ElementCopies<true> copies{{p.ragged, chunk.first}, {t, chunk.first}, p.fill};
  int64_t window_start = 0;
  int done = 0;
  for (int64_t row = threadIdx.x;; row += kRowThreads) {
    const bool in_range = row < p.num_seqs, is_last = row - threadIdx.x + kRowThreads >= p.num_seqs;
    const LoadedIndex input = load_input(p.input_lengths, row, in_range),
                      cache = load_input(p.cache_lengths, row, in_range);
    const int64_t length =
        smaller(length_of(bounded(input.value()) + bounded(cache.value())), p.ragged.size);
    int64_t before, total;
    if (p.ragged.size < kSmallSum) {
      uint32_t all;
      before = block_sum_before(static_cast<uint32_t>(length), small_scratch, all);
      total = all;
    } else {
      Sums<1> all;
      before = block_sums_before(Sums<1>{length}, Sums<1>{kHuge}, scratch, all).of[0];
      total = all.of[0];
    }
    const int64_t start = window_start + before, end = start + length;
    set_row(
        window, chunk, in_range, start, end,
        {start, smaller(end, start + t.width), row * t.row_step_bytes() - start * t.step_bytes()});
    window_start = smaller(window_start + total, p.ragged.size);
    __syncthreads();
    const int rows_end = is_last ? chunk.size : chunk.place_of(window_start);
    if (rows_end > done) {
      write_elements<kPerThread>(copies, window, done, rows_end);
      if (rows_end == chunk.size) return;
      done = rows_end;
    }
    __syncthreads();
  }
}

template <class... Tensors>
bool are_contiguous(const Tensors&... tensors) {
  return (is_contiguous(tensors) && ...);
}

/// Chooses a kernel and launches it: contiguous(choice), or general(elements per thread as a
/// constant, blocks).
template <class Contiguous, class General>
void launch(std::string_view op, const ConversionCall& call, const Contiguous& contiguous,
            const General& general) {
  const ConversionChoice choice = select_conversion_kernel(call);
  log_choice(op, choice);
  if (choice.kernel == ConversionKernel::kContiguous) contiguous(choice);
  if (choice.kernel != ConversionKernel::kGeneral) return;
  if (choice.per_thread == 1) {
    general(std::integral_constant<int, 1>{}, choice.blocks);
  } else {
    general(std::integral_constant<int, kManyPerThread>{}, choice.blocks);
  }
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void block_tables_to_ragged(const ExecContext& ctx, const BlockTablesToRaggedParams& p) {
  const ConversionCall call{
      .num_seqs = p.num_seqs,
      .size = p.ragged.size,
      .is_contiguous = p.ragged.size < kSmallSum &&
                       are_contiguous(p.ragged, p.block_tables, p.input_lengths, p.cache_lengths),
      .fills = p.fill.on,
      .num_sms = ctx.info.num_sms};
  launch(
      "block_tables_to_ragged", call,
      [&](const ConversionChoice& c) { contiguous_block_tables_to_ragged(ctx, p, c); },
      [&](auto per_thread, unsigned blocks) {
        to_ragged_kernel<per_thread><<<blocks, kRowThreads, 0, ctx.stream>>>(p);
      });
}

void block_tables_to_padded(const ExecContext& ctx, const BlockTablesToPaddedParams& p) {
  const ConversionCall call{
      .num_seqs = p.num_seqs,
      .size = p.fill.on ? p.num_seqs * p.block_tables.width : p.ragged.size,
      .is_contiguous = !p.fill.on && are_contiguous(p.block_tables, p.ragged, p.cu_seqlens),
      .fills = p.fill.on,
      .num_sms = ctx.info.num_sms};
  launch(
      "block_tables_to_padded", call,
      [&](const ConversionChoice& c) { contiguous_block_tables_to_padded(ctx, p, c); },
      [&](auto per_thread, unsigned blocks) {
        (p.fill.on ? to_filled_padded_kernel<per_thread>
                   : to_padded_kernel<per_thread>)<<<blocks, kRowThreads, 0, ctx.stream>>>(p);
      });
}

void copy_next_input_ids(const ExecContext& ctx, const CopyNextInputIdsParams& p) {
  const ConversionCall call{
      .num_seqs = p.num_seqs,
      .size = p.next_input_ids.size,
      .is_contiguous = are_contiguous(p.all_input_ids, p.next_input_ids, p.cu_accepted_ids,
                                      p.cache_lengths, p.input_lengths, p.prompt_lengths),
      .num_sms = ctx.info.num_sms};
  launch(
      "copy_next_input_ids_inplace", call,
      [&](const ConversionChoice& c) { contiguous_copy_next_input_ids(ctx, p, c); },
      [&](auto per_thread, unsigned blocks) {
        copy_next_kernel<per_thread><<<blocks, kRowThreads, 0, ctx.stream>>>(p);
      });
}

void prepare_position_slot_ids(const ExecContext& ctx, const PositionSlotIdsParams& p) {
  const ConversionCall call{
      .num_seqs = p.num_seqs,
      .size = std::max(p.position_ids.size, p.slot_indices.size),
      .is_contiguous =
          are_contiguous(p.position_ids, p.slot_indices, p.cache_lengths, p.cu_seqlens, p.cu_slots),
      .num_sms = ctx.info.num_sms};
  launch(
      "prepare_position_slot_ids", call,
      [&](const ConversionChoice& c) { contiguous_position_slot_ids(ctx, p, c); },
      [&](auto per_thread, unsigned blocks) {
        position_slots_kernel<per_thread><<<blocks, kRowThreads, 0, ctx.stream>>>(p);
      });
}

void slots_filtering(const ExecContext& ctx, const SlotsFilteringParams& p) {
  const ConversionCall call{
      .num_seqs = p.num_seqs,
      .size = p.filtered_slots.size,
      .is_contiguous = are_contiguous(p.filtered_slots, p.slots, p.cu_slots, p.slots_start),
      .fills = p.fill.on,
      .num_sms = ctx.info.num_sms};
  launch(
      "slots_filtering", call,
      [&](const ConversionChoice& c) { contiguous_slots_filtering(ctx, p, c); },
      [&](auto per_thread, unsigned blocks) {
        filter_slots_kernel<per_thread><<<blocks, kRowThreads, 0, ctx.stream>>>(p);
      });
}

}  // namespace heddle::cuda::metadata
