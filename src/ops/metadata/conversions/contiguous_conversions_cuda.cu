#include <algorithm>
#include <type_traits>

#include "cuda/begin_early_cuda.h"
#include "cuda/early_launch.h"
#include "cuda/load_cuda.h"

#include "ops/metadata/contiguous_rows_cuda.h"
#include "ops/metadata/conversions/conversions_kernels.h"

// The conversions of contiguous tensors (contiguous_rows_cuda.h). Parameters are few, since a
// kernel gets 64 bytes of them at a time.

namespace heddle::cuda::metadata {
namespace {

__device__ int32_t load_if(const int32_t* at, bool in_range) {
  return static_cast<int32_t>(load_word_if(at, in_range));
}
/// The number at an address, or that at another one which can be read: no branch, so that several
/// loads go out one after the other.
__device__ int32_t load_either(const int32_t* at, bool in_range, const int32_t* readable) {
  return *(in_range ? at : readable);
}
/// Places are sums that may wrap where the metadata makes no sense; so seen, those in front of a
/// tensor are behind it.
__device__ int32_t sum_of(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}
__device__ int32_t difference_of(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) - static_cast<uint32_t>(b));
}
__device__ bool is_within(int32_t place, int32_t size) {
  return static_cast<uint32_t>(place) < static_cast<uint32_t>(size);
}

// Members stand in the order in which they are needed.

/// block_tables[a][element - begin] = ragged[element]
struct ContiguousToPadded {
  const int32_t* starts;
  int32_t num_rows, size;
  const int32_t* ragged;
  int32_t width, row_stride;
  int32_t* block_tables;

  struct Facts {};
  __device__ Facts facts(int) const { return {}; }
  __device__ ContiguousRow row(int r, int32_t start, int32_t end, Facts) const {
    return {start, end, r, 0};
  }
  __device__ static bool fills() { return false; }
  __device__ bool has(int32_t element, const ContiguousRow& row) const {
    return is_within(difference_of(element, row.begin), width);
  }
  __device__ int32_t fetch(int32_t element, const ContiguousRow&, bool is_copied) const {
    return load_either(ragged + element, is_copied, starts);
  }
  __device__ void put(int32_t element, const ContiguousRow& row, int32_t value) const {
    block_tables[int64_t{row.a} * row_stride + (element - row.begin)] = value;
  }
};

/// all_input_ids[b][a + element] = next_input_ids[element]
struct ContiguousCopyNext {
  const int32_t *starts, *cache_lengths, *input_lengths, *prompt_lengths;
  int32_t num_rows, size;
  const int32_t* next_input_ids;
  int32_t width, row_stride;
  int32_t* all_input_ids;

  struct Facts {
    int32_t cache, input, prompt;
  };
  __device__ Facts facts(int r) const {
    return {load_if(cache_lengths + r, true), load_if(input_lengths + r, true),
            load_if(prompt_lengths + r, true)};
  }
  __device__ ContiguousRow row(int r, int32_t start, int32_t end, const Facts& f) const {
    // From an element to its position; those within the prompt are left out.
    const int32_t shift = difference_of(sum_of(f.cache, f.input), start);
    return {larger(start, difference_of(f.prompt, shift)), end, shift, r};
  }
  __device__ static bool fills() { return false; }
  __device__ bool has(int32_t element, const ContiguousRow& row) const {
    return is_within(sum_of(element, row.a), width);
  }
  __device__ int32_t fetch(int32_t element, const ContiguousRow&, bool is_copied) const {
    return load_either(next_input_ids + element, is_copied, starts);
  }
  __device__ void put(int32_t element, const ContiguousRow& row, int32_t value) const {
    all_input_ids[int64_t{row.b} * row_stride + sum_of(element, row.a)] = value;
  }
};

/// position_ids[element] = a + element, slot_indices[element] = b + element
struct ContiguousPositionSlots {
  const int32_t *starts, *cache_lengths, *cu_slots;
  int32_t num_rows, size, num_positions, num_slots;
  int32_t *position_ids, *slot_indices;

  struct Facts {
    int32_t cache, slot;
  };
  __device__ Facts facts(int r) const {
    return {load_if(cache_lengths + r, true), load_if(cu_slots + r, num_slots > 0)};
  }
  __device__ ContiguousRow row(int, int32_t start, int32_t end, const Facts& f) const {
    const int32_t shift = difference_of(f.cache, start);
    return {start, end, shift, sum_of(shift, f.slot)};
  }
  __device__ static bool fills() { return false; }
  __device__ bool has(int32_t, const ContiguousRow&) const { return true; }
  __device__ int32_t fetch(int32_t, const ContiguousRow&, bool) const { return 0; }
  __device__ void put(int32_t element, const ContiguousRow& row, int32_t) const {
    if (element < num_positions) position_ids[element] = sum_of(row.a, element);
    if (element < num_slots) slot_indices[element] = sum_of(row.b, element);
  }
};

/// filtered_slots[element] = slots[a + element]
struct ContiguousFilterSlots {
  const int32_t *starts, *slots_start;
  int32_t num_rows, size;
  const int32_t* slots;
  int32_t num_slots, fill_value;
  int32_t* filtered_slots;
  bool has_fill;

  struct Facts {
    int32_t from;
  };
  __device__ Facts facts(int r) const { return {load_if(slots_start + r, true)}; }
  __device__ ContiguousRow row(int, int32_t start, int32_t end, const Facts& f) const {
    return {start, end, difference_of(f.from, start), 0};
  }
  __device__ bool fills() const { return has_fill; }
  __device__ bool has(int32_t element, const ContiguousRow& row) const {
    return is_within(sum_of(element, row.a), num_slots);
  }
  __device__ int32_t fetch(int32_t element, const ContiguousRow& row, bool is_copied) const {
    const int32_t value = load_either(slots + sum_of(element, row.a), is_copied, starts);
    return is_copied ? value : fill_value;
  }
  __device__ void put(int32_t element, const ContiguousRow&, int32_t value) const {
    filtered_slots[element] = value;
  }
};

// The four conversions whose rows have given starts.
template <int kPerLane, class Op>
__global__ void __launch_bounds__(kRowThreads) contiguous_kernel(const __grid_constant__ Op op) {
  __shared__ ContiguousWindow<kPerLane> window;
  const int r = threadIdx.x;
  const bool is_row = r < op.num_rows;
  clear(window);
  const ContiguousChunk chunk = ContiguousChunk::of_block(op.size, kPerLane);
  begin_early(op);
  int32_t start = 0, end = 0;
  typename Op::Facts facts;
  if (is_row) {
    start = load_if(op.starts + r, true);
    end = load_if(op.starts + r + 1, true);
    facts = op.facts(r);
  }
  __syncthreads();
  if (is_row) set_row(window, chunk, op.row(r, start, end, facts));
  __syncthreads();
  write_chunk(op, window, chunk);
}

/// ragged[element] = block_tables[a][element - begin]
struct ContiguousToRagged {
  const int32_t *input_lengths, *cache_lengths;
  int32_t num_rows, size;
  const int32_t* block_tables;
  int32_t width, row_stride;
  int32_t* ragged;
  int32_t fill_value;
  bool has_fill;

  __device__ bool fills() const { return has_fill; }
  __device__ bool has(int32_t element, const ContiguousRow& row) const {
    return element - row.begin < width;
  }
  __device__ int32_t fetch(int32_t element, const ContiguousRow& row, bool is_copied) const {
    const int32_t* at = block_tables + int64_t{row.a} * row_stride + (element - row.begin);
    const int32_t value = load_either(at, is_copied, input_lengths);
    return is_copied ? value : fill_value;
  }
  __device__ void put(int32_t element, const ContiguousRow&, int32_t value) const {
    ragged[element] = value;
  }
};

// Every block adds up all lengths: that is cheaper than to wait for another block, and no block
// waits.
template <int kPerLane>
__global__ void __launch_bounds__(kRowThreads)
    contiguous_to_ragged_kernel(const __grid_constant__ ContiguousToRagged op) {
  __shared__ ContiguousWindow<kPerLane> window;
  __shared__ uint32_t scratch[kRowThreads / 32];  // [warps]
  const int r = threadIdx.x;
  const bool is_row = r < op.num_rows;
  clear(window);
  const ContiguousChunk chunk = ContiguousChunk::of_block(op.size, kPerLane);
  begin_early(op);
  const int32_t input = load_if(op.input_lengths + r, is_row),
                cache = load_if(op.cache_lengths + r, is_row);
  const int64_t asked = int64_t{input} + cache;
  const auto length = static_cast<int32_t>(larger(int64_t{0}, smaller(asked, int64_t{op.size})));
  uint32_t total;
  const auto start = static_cast<int32_t>(
      block_sum_before(static_cast<uint32_t>(length), scratch, total));  // with a barrier
  set_row(window, chunk, {start, start + length, r, 0});
  __syncthreads();
  write_chunk(op, window, chunk);
}

/// The kernel for the choice's elements per lane.
template <class Op>
void launch_contiguous(const ExecContext& ctx, const ConversionChoice& choice, const Op& op) {
  if (choice.per_thread == 1) {
    launch_early<contiguous_kernel<1, Op>>(ctx, choice.blocks, kRowThreads, op);
  } else {
    launch_early<contiguous_kernel<kManyPerThread, Op>>(ctx, choice.blocks, kRowThreads, op);
  }
}

template <class Byte>
auto* data_of(const BasicIndexList<Byte>& t) {
  using Number = std::conditional_t<std::is_const_v<Byte>, const int32_t, int32_t>;
  return reinterpret_cast<Number*>(t.data);
}
template <class Byte>
auto* data_of(const BasicIndexTable<Byte>& t) {
  return data_of(t[0]);
}
int32_t narrow(int64_t x) { return static_cast<int32_t>(x); }

}  // namespace

void contiguous_block_tables_to_ragged(const ExecContext& ctx, const BlockTablesToRaggedParams& p,
                                       const ConversionChoice& choice) {
  const ContiguousToRagged op{.input_lengths = data_of(p.input_lengths),
                              .cache_lengths = data_of(p.cache_lengths),
                              .num_rows = narrow(p.num_seqs),
                              .size = narrow(p.ragged.size),
                              .block_tables = data_of(p.block_tables),
                              .width = narrow(p.block_tables.width),
                              .row_stride = narrow(p.block_tables.row_stride),
                              .ragged = data_of(p.ragged),
                              .fill_value = narrow(p.fill.value),
                              .has_fill = p.fill.on};
  if (choice.per_thread == 1) {
    launch_early<contiguous_to_ragged_kernel<1>>(ctx, choice.blocks, kRowThreads, op);
  } else {
    launch_early<contiguous_to_ragged_kernel<kManyPerThread>>(ctx, choice.blocks, kRowThreads, op);
  }
}

void contiguous_block_tables_to_padded(const ExecContext& ctx, const BlockTablesToPaddedParams& p,
                                       const ConversionChoice& choice) {
  launch_contiguous(ctx, choice,
                    ContiguousToPadded{.starts = data_of(p.cu_seqlens),
                                       .num_rows = narrow(p.num_seqs),
                                       .size = narrow(p.ragged.size),
                                       .ragged = data_of(p.ragged),
                                       .width = narrow(p.block_tables.width),
                                       .row_stride = narrow(p.block_tables.row_stride),
                                       .block_tables = data_of(p.block_tables)});
}

void contiguous_copy_next_input_ids(const ExecContext& ctx, const CopyNextInputIdsParams& p,
                                    const ConversionChoice& choice) {
  launch_contiguous(ctx, choice,
                    ContiguousCopyNext{.starts = data_of(p.cu_accepted_ids),
                                       .cache_lengths = data_of(p.cache_lengths),
                                       .input_lengths = data_of(p.input_lengths),
                                       .prompt_lengths = data_of(p.prompt_lengths),
                                       .num_rows = narrow(p.num_seqs),
                                       .size = narrow(p.next_input_ids.size),
                                       .next_input_ids = data_of(p.next_input_ids),
                                       .width = narrow(p.all_input_ids.width),
                                       .row_stride = narrow(p.all_input_ids.row_stride),
                                       .all_input_ids = data_of(p.all_input_ids)});
}

void contiguous_position_slot_ids(const ExecContext& ctx, const PositionSlotIdsParams& p,
                                  const ConversionChoice& choice) {
  const int64_t size = std::max(p.position_ids.size, p.slot_indices.size);
  launch_contiguous(ctx, choice,
                    ContiguousPositionSlots{.starts = data_of(p.cu_seqlens),
                                            .cache_lengths = data_of(p.cache_lengths),
                                            .cu_slots = data_of(p.cu_slots),
                                            .num_rows = narrow(p.num_seqs),
                                            .size = narrow(size),
                                            .num_positions = narrow(p.position_ids.size),
                                            .num_slots = narrow(p.slot_indices.size),
                                            .position_ids = data_of(p.position_ids),
                                            .slot_indices = data_of(p.slot_indices)});
}

void contiguous_slots_filtering(const ExecContext& ctx, const SlotsFilteringParams& p,
                                const ConversionChoice& choice) {
  launch_contiguous(ctx, choice,
                    ContiguousFilterSlots{.starts = data_of(p.cu_slots),
                                          .slots_start = data_of(p.slots_start),
                                          .num_rows = narrow(p.num_seqs),
                                          .size = narrow(p.filtered_slots.size),
                                          .slots = data_of(p.slots),
                                          .num_slots = narrow(p.slots.size),
                                          .fill_value = narrow(p.fill.value),
                                          .filtered_slots = data_of(p.filtered_slots),
                                          .has_fill = p.fill.on});
}

}  // namespace heddle::cuda::metadata
