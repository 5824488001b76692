#include <algorithm>
#include <string_view>
#include <type_traits>

#include "cuda/begin_early_cuda.h"
#include "cuda/check.h"
#include "cuda/early_launch.h"

#include "core/kernel_log.h"
#include "ops/metadata/conversions/conversion_tensors_cuda.h"
#include "ops/metadata/conversions/conversions_kernels.h"
#include "ops/metadata/conversions/ragged_rows_cuda.h"

// One launch each (ragged_rows_cuda.h). Each op says what is written to an element. Parameters are
// few and in the order in which they are needed, since a kernel gets 64 bytes of them at a time.

namespace heddle::cuda::metadata {
namespace {

template <class Place>
__device__ bool is_within(Place place, Place size) {
  using Word = std::make_unsigned_t<Place>;
  return static_cast<Word>(place) < static_cast<Word>(size);
}

template <class T>
using PlaceRow = RaggedRow<typename T::Place, typename T::Place>;

// An op has, next to what write_chunk() says,
//   Row row(r, is_row, before): loads row r, or makes an empty one. Called by all threads; `before`
//     is what the rows of the windows before have together, where starts are not given.

/// block_tables[a][element - begin] = ragged[element]
template <class T>
struct ToPadded {
  using Tensors = T;
  using Place = typename T::Place;
  using Row = PlaceRow<T>;
  static constexpr bool kHasStarts = true;

  typename T::Input starts;
  Place num_rows, size;
  typename T::Input ragged;
  Place width, row_stride;
  typename T::Output block_tables;

  __device__ Row row(Place r, bool is_row, Place&) const {
    const auto start = T::load_if(starts, r, is_row), end = T::load_if(starts, r + 1, is_row);
    return {T::place(start), T::place(end), r, 0};
  }
  __device__ static bool fills() { return false; }
  __device__ bool has(Place element, const Row& row) const {
    return is_within(wrapped_difference(element, row.begin), width);
  }
  __device__ auto fetch(Place element, const Row&, bool is_copied) const {
    return T::load_or(ragged, element, is_copied, 0, starts);
  }
  __device__ void put(Place element, const Row& row, typename T::Number value) const {
    T::store(block_tables, T::column(row.a, row_stride, element - row.begin), value);
  }
};

/// all_input_ids[b][a + element] = next_input_ids[element]
template <class T>
struct CopyNext {
  using Tensors = T;
  using Place = typename T::Place;
  using Row = PlaceRow<T>;
  static constexpr bool kHasStarts = true;

  typename T::Input starts, cache_lengths, input_lengths, prompt_lengths;
  Place num_rows, size;
  typename T::Input next_input_ids;
  Place width, row_stride;
  typename T::Output all_input_ids;

  __device__ Row row(Place r, bool is_row, Place&) const {
    const auto start = T::load_if(starts, r, is_row), end = T::load_if(starts, r + 1, is_row),
               cache = T::load_if(cache_lengths, r, is_row),
               input = T::load_if(input_lengths, r, is_row),
               prompt = T::load_if(prompt_lengths, r, is_row);
    // From an element to its position; those within the prompt are left out.
    const auto first = T::length(start);
    const auto shift = wrapped_difference(wrapped_sum(T::length(cache), T::length(input)), first);
    return {T::place(larger(first, wrapped_difference(T::length(prompt), shift))), T::place(end),
            T::place(shift), r};
  }
  __device__ static bool fills() { return false; }
  __device__ bool has(Place element, const Row& row) const {
    return is_within(wrapped_sum(element, row.a), width);
  }
  __device__ auto fetch(Place element, const Row&, bool is_copied) const {
    return T::load_or(next_input_ids, element, is_copied, 0, starts);
  }
  __device__ void put(Place element, const Row& row, typename T::Number value) const {
    T::store(all_input_ids, T::column(row.b, row_stride, wrapped_sum(element, row.a)), value);
  }
};

/// position_ids[element] = a + element, slot_indices[element] = b + element
template <class T>
struct PositionSlots {
  using Tensors = T;
  using Place = typename T::Place;
  using Row = RaggedRow<Place, typename T::Number>;
  static constexpr bool kHasStarts = true;

  typename T::Input starts, cache_lengths, cu_slots;
  Place num_rows, size, num_positions, num_slots;
  typename T::Output position_ids, slot_indices;

  __device__ Row row(Place r, bool is_row, Place&) const {
    const auto start = T::load_if(starts, r, is_row), end = T::load_if(starts, r + 1, is_row),
               cache = T::load_if(cache_lengths, r, is_row),
               slot = T::load_if(cu_slots, r, is_row && num_slots > 0);
    const auto shift = wrapped_difference(T::length(cache), T::length(start));
    return {T::place(start), T::place(end), shift, wrapped_sum(shift, T::length(slot))};
  }
  __device__ static bool fills() { return false; }
  __device__ bool has(Place, const Row&) const { return true; }
  __device__ typename T::Value fetch(Place, const Row&, bool) const { return {}; }
  __device__ void put(Place element, const Row& row, typename T::Number) const {
    if (element < num_positions) T::store(position_ids, element, wrapped_sum(row.a, element));
    if (element < num_slots) T::store(slot_indices, element, wrapped_sum(row.b, element));
  }
};

/// filtered_slots[element] = slots[a + element]
template <class T>
struct FilterSlots {
  using Tensors = T;
  using Place = typename T::Place;
  using Row = PlaceRow<T>;
  static constexpr bool kHasStarts = true;

  typename T::Input starts, slots_start;
  Place num_rows, size;
  typename T::Input slots;
  typename T::Output filtered_slots;
  typename T::Number fill_value;
  Place num_slots;
  bool has_fill;

  __device__ Row row(Place r, bool is_row, Place&) const {
    const auto start = T::load_if(starts, r, is_row), end = T::load_if(starts, r + 1, is_row),
               from = T::load_if(slots_start, r, is_row);
    return {T::place(start), T::place(end),
            T::place(wrapped_difference(T::length(from), T::length(start))), 0};
  }
  __device__ bool fills() const { return has_fill; }
  __device__ bool has(Place element, const Row& row) const {
    return is_within(wrapped_sum(element, row.a), num_slots);
  }
  __device__ auto fetch(Place element, const Row& row, bool is_copied) const {
    return T::load_or(slots, wrapped_sum(element, row.a), is_copied, fill_value, starts);
  }
  __device__ void put(Place element, const Row&, typename T::Number value) const {
    T::store(filtered_slots, element, value);
  }
};

/// ragged[element] = block_tables[a][element - begin]. Every block adds up all lengths: that is
/// cheaper than to wait for another block, and no block waits.
template <class T>
struct ToRagged {
  using Tensors = T;
  using Place = typename T::Place;
  using Row = PlaceRow<T>;
  static constexpr bool kHasStarts = false;

  typename T::Input input_lengths, cache_lengths;
  Place num_rows, size;
  typename T::Input block_tables;
  Place width, row_stride;
  typename T::Output ragged;
  typename T::Number fill_value;
  bool has_fill;

  /// With a barrier.
  __device__ Row row(Place r, bool is_row, Place& before) const {
    const auto input = T::load_if(input_lengths, r, is_row),
               cache = T::load_if(cache_lengths, r, is_row);
    const int64_t sum = wrapped_sum<int64_t>(int64_t{T::length(input)}, int64_t{T::length(cache)});
    const auto length = static_cast<Place>(larger(int64_t{0}, smaller(sum, int64_t{size})));
    Place total;
    const Place start = before + starts_of(length, total);
    before = smaller(before + total, size);
    return {start, start + length, r, 0};
  }
  __device__ bool fills() const { return has_fill; }
  __device__ bool has(Place element, const Row& row) const { return element - row.begin < width; }
  __device__ auto fetch(Place element, const Row& row, bool is_copied) const {
    return T::load_or(block_tables, T::column(row.a, row_stride, element - row.begin), is_copied,
                      fill_value, input_lengths);
  }
  __device__ void put(Place element, const Row&, typename T::Number value) const {
    T::store(ragged, element, value);
  }

 private:
  /// Where the row of this thread starts in its window, and how many elements all have.
  __device__ Place starts_of(Place length, Place& total) const {
    __shared__ uint32_t scratch[kRowThreads / 32];  // [warps]
    if constexpr (T::kHasWindows) {
      if (size >= kSmallSum) {
        __shared__ Sums<1> large_scratch[kMaxWarps];  // [warps]
        Sums<1> all;
        const Place start =
            block_sums_before(Sums<1>{length}, Sums<1>{kHuge}, large_scratch, all).of[0];
        total = all.of[0];
        return start;
      }
    }
    uint32_t all;
    const uint32_t start = block_sum_before(static_cast<uint32_t>(length), scratch, all);
    total = static_cast<Place>(all);
    return static_cast<Place>(start);
  }
};

template <int kPerLane, class Op>
__global__ void __launch_bounds__(kRowThreads) conversion_kernel(const __grid_constant__ Op op) {
  using Place = typename Op::Place;
  __shared__ RowWindow<kPerLane, typename Op::Row> window;
  clear(window);
  const auto chunk = RaggedChunk<Place>::of_block(op.size, kPerLane);
  if constexpr (Op::kHasStarts) __syncthreads();  // while the previous kernel still runs
  begin_early(op);
  Place base = 0, before = 0;
  if constexpr (Op::Tensors::kHasWindows && Op::kHasStarts) {
    base = first_row_of(op.num_rows, chunk.first, [&](Place row) {
      return Op::Tensors::place(Op::Tensors::load_if(op.starts, row, true));
    });
  }
  uint32_t copied = 0;
  while (true) {
    const Place r = base + static_cast<Place>(threadIdx.x);
    const typename Op::Row row = op.row(r, r < op.num_rows, before);
    bool is_last = true;
    if constexpr (Op::Tensors::kHasWindows) {
      base += kRowThreads;
      is_last = base >= op.num_rows;
      if (!Op::kHasStarts && !is_last && before <= chunk.first) {  // rows of earlier chunks
        __syncthreads();
        continue;
      }
    }
    set_row(window, chunk, row);
    if constexpr (Op::Tensors::kHasWindows) {
      const bool is_past = threadIdx.x == kRowThreads - 1 && row.end >= chunk.end();
      is_last = __syncthreads_or(is_last || is_past ? 1 : 0) != 0;
    } else {
      __syncthreads();
    }
    write_chunk(op, window, chunk, is_last, copied);
    if (is_last) return;
    __syncthreads();
    clear(window);
    __syncthreads();
  }
}

// block_tables whole: each element gets its entry of `ragged` or the fill value, so elements
// balance and nothing is searched.
template <int kPerThread>
__global__ void __launch_bounds__(kRowThreads)
    to_filled_padded_kernel(const __grid_constant__ BlockTablesToPaddedParams p) {
  const int64_t width = p.block_tables.width;
  const auto chunk = RaggedChunk<int64_t>::of_block(p.num_seqs * width, kPerThread);
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

template <class T, class Byte>
IndexVector<Byte, T::kStored> vector_of(const BasicIndexList<Byte>& t) {
  return {t.data, t.step_bytes(), t.size > 0 && t.is_int64};
}
template <class T, class Byte>
auto vector_of(const BasicIndexTable<Byte>& t) {
  return vector_of<T>(t[0]);
}
/// From a row to the next, as T::column() takes it.
template <class T, class Table>
typename T::Place row_stride_of(const Table& t) {
  return static_cast<typename T::Place>(T::kHasWindows ? t.row_step_bytes() : t.row_stride);
}

ConversionChoice choose(std::string_view op, const ConversionCall& call) {
  const ConversionChoice choice = select_conversion_kernel(call);
  log_choice(op, choice);
  return choice;
}
/// Launches the kernel of make(T) for the T that takes the call's tensors. call.is_contiguous: but
/// for them.
template <class Make, class... Tensors>
void convert(const ExecContext& ctx, std::string_view name, ConversionCall call, const Make& make,
             const Tensors&... tensors) {
  call.is_contiguous = call.is_contiguous && (is_contiguous(tensors) && ...);
  call.num_sms = ctx.info.num_sms;
  const ConversionChoice choice = choose(name, call);
  const auto launch = [&]<IndexLayout kLayout>() {
    const auto op = make.template operator()<ConversionTensors<kLayout>>();
    using Op = std::remove_const_t<decltype(op)>;
    if (choice.per_thread == 1) {
      launch_early<conversion_kernel<1, Op>>(ctx, choice.blocks, kRowThreads, op);
    } else {
      launch_early<conversion_kernel<kManyPerThread, Op>>(ctx, choice.blocks, kRowThreads, op);
    }
  };
  if (choice.kernel == ConversionKernel::kGeneral) {
    launch.template operator()<IndexLayout::kStrided>();
  } else if (choice.kernel == ConversionKernel::kContiguous) {
    if ((is_i32(tensors) && ...)) {
      launch.template operator()<IndexLayout::kI32>();
    } else {
      launch.template operator()<IndexLayout::kMixed>();
    }
  }
}

}  // namespace

void block_tables_to_ragged(const ExecContext& ctx, const BlockTablesToRaggedParams& p) {
  const auto make = [&]<class T>() {
    using Place = typename T::Place;
    return ToRagged<T>{.input_lengths = vector_of<T>(p.input_lengths),
                       .cache_lengths = vector_of<T>(p.cache_lengths),
                       .num_rows = static_cast<Place>(p.num_seqs),
                       .size = static_cast<Place>(p.ragged.size),
                       .block_tables = vector_of<T>(p.block_tables),
                       .width = static_cast<Place>(p.block_tables.width),
                       .row_stride = row_stride_of<T>(p.block_tables),
                       .ragged = vector_of<T>(p.ragged),
                       .fill_value = static_cast<typename T::Number>(p.fill.value),
                       .has_fill = p.fill.on};
  };
  const ConversionCall call{.num_seqs = p.num_seqs,
                            .size = p.ragged.size,
                            .is_contiguous = p.ragged.size < kSmallSum,
                            .fills = p.fill.on};
  convert(ctx, "block_tables_to_ragged", call, make, p.ragged, p.block_tables, p.input_lengths,
          p.cache_lengths);
}

void block_tables_to_padded(const ExecContext& ctx, const BlockTablesToPaddedParams& p) {
  constexpr std::string_view kName = "block_tables_to_padded";
  if (p.fill.on) {
    const ConversionChoice choice = choose(kName, {.num_seqs = p.num_seqs,
                                                   .size = p.num_seqs * p.block_tables.width,
                                                   .fills = true,
                                                   .num_sms = ctx.info.num_sms});
    if (choice.kernel == ConversionKernel::kNone) return;
    (choice.per_thread == 1
         ? to_filled_padded_kernel<1>
         : to_filled_padded_kernel<kManyPerThread>)<<<choice.blocks, kRowThreads, 0, ctx.stream>>>(
        p);
    HEDDLE_CUDA_CHECK(cudaGetLastError());
    return;
  }
  const auto make = [&]<class T>() {
    using Place = typename T::Place;
    return ToPadded<T>{.starts = vector_of<T>(p.cu_seqlens),
                       .num_rows = static_cast<Place>(p.num_seqs),
                       .size = static_cast<Place>(p.ragged.size),
                       .ragged = vector_of<T>(p.ragged),
                       .width = static_cast<Place>(p.block_tables.width),
                       .row_stride = row_stride_of<T>(p.block_tables),
                       .block_tables = vector_of<T>(p.block_tables)};
  };
  convert(ctx, kName, {.num_seqs = p.num_seqs, .size = p.ragged.size, .is_contiguous = true}, make,
          p.block_tables, p.ragged, p.cu_seqlens);
}

void copy_next_input_ids(const ExecContext& ctx, const CopyNextInputIdsParams& p) {
  const auto make = [&]<class T>() {
    using Place = typename T::Place;
    return CopyNext<T>{.starts = vector_of<T>(p.cu_accepted_ids),
                       .cache_lengths = vector_of<T>(p.cache_lengths),
                       .input_lengths = vector_of<T>(p.input_lengths),
                       .prompt_lengths = vector_of<T>(p.prompt_lengths),
                       .num_rows = static_cast<Place>(p.num_seqs),
                       .size = static_cast<Place>(p.next_input_ids.size),
                       .next_input_ids = vector_of<T>(p.next_input_ids),
                       .width = static_cast<Place>(p.all_input_ids.width),
                       .row_stride = row_stride_of<T>(p.all_input_ids),
                       .all_input_ids = vector_of<T>(p.all_input_ids)};
  };
  convert(ctx, "copy_next_input_ids_inplace",
          {.num_seqs = p.num_seqs, .size = p.next_input_ids.size, .is_contiguous = true}, make,
          p.all_input_ids, p.next_input_ids, p.cu_accepted_ids, p.cache_lengths, p.input_lengths,
          p.prompt_lengths);
}

void prepare_position_slot_ids(const ExecContext& ctx, const PositionSlotIdsParams& p) {
  const int64_t size = std::max(p.position_ids.size, p.slot_indices.size);
  const auto make = [&]<class T>() {
    using Place = typename T::Place;
    return PositionSlots<T>{.starts = vector_of<T>(p.cu_seqlens),
                            .cache_lengths = vector_of<T>(p.cache_lengths),
                            .cu_slots = vector_of<T>(p.cu_slots),
                            .num_rows = static_cast<Place>(p.num_seqs),
                            .size = static_cast<Place>(size),
                            .num_positions = static_cast<Place>(p.position_ids.size),
                            .num_slots = static_cast<Place>(p.slot_indices.size),
                            .position_ids = vector_of<T>(p.position_ids),
                            .slot_indices = vector_of<T>(p.slot_indices)};
  };
  convert(ctx, "prepare_position_slot_ids",
          {.num_seqs = p.num_seqs, .size = size, .is_contiguous = true}, make, p.position_ids,
          p.slot_indices, p.cache_lengths, p.cu_seqlens, p.cu_slots);
}

void slots_filtering(const ExecContext& ctx, const SlotsFilteringParams& p) {
  const auto make = [&]<class T>() {
    using Place = typename T::Place;
    return FilterSlots<T>{.starts = vector_of<T>(p.cu_slots),
                          .slots_start = vector_of<T>(p.slots_start),
                          .num_rows = static_cast<Place>(p.num_seqs),
                          .size = static_cast<Place>(p.filtered_slots.size),
                          .slots = vector_of<T>(p.slots),
                          .filtered_slots = vector_of<T>(p.filtered_slots),
                          .fill_value = static_cast<typename T::Number>(p.fill.value),
                          .num_slots = static_cast<Place>(p.slots.size),
                          .has_fill = p.fill.on};
  };
  const ConversionCall call{.num_seqs = p.num_seqs,
                            .size = p.filtered_slots.size,
                            .is_contiguous = true,
                            .fills = p.fill.on};
  convert(ctx, "slots_filtering", call, make, p.filtered_slots, p.slots, p.cu_slots, p.slots_start);
}

}  // namespace heddle::cuda::metadata
