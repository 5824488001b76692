#include <algorithm>
#include <type_traits>

#include "cuda/begin_early_cuda.h"
#include "cuda/early_launch.h"
#include "cuda/index_cuda.h"

#include "ops/metadata/contiguous_rows_cuda.h"
#include "ops/metadata/conversions/conversions_kernels.h"

// The conversions of contiguous tensors (contiguous_rows_cuda.h). Parameters are few, since a
// kernel gets 64 bytes of them at a time.

namespace heddle::cuda::metadata {
namespace {

__device__ bool is_within(int32_t place, int32_t size) {
  return static_cast<uint32_t>(place) < static_cast<uint32_t>(size);
}
/// element + shift. Where that wraps it is not within a tensor, which has at most kMaxContiguous
/// elements, and an element is not below 0.
__device__ int32_t place_behind(int32_t element, int32_t shift) {
  return static_cast<int32_t>(static_cast<uint32_t>(element) + static_cast<uint32_t>(shift));
}

/// What a kernel does with the tensors of a call, which are all i32, or any of them i64: how it
/// loads, stores and computes. Places are sums that may wrap where the metadata makes no sense; so
/// seen, those in front of a tensor are behind it.
template <IndexLayout kLayout>
struct Tensors;

template <>
struct Tensors<IndexLayout::kI32> {
  using Number = int32_t;
  using Value = int32_t;

  static __device__ Number number(Value x) { return x; }
  /// The element; zero, without a read, where in_range is false.
  template <class Int>
  static __device__ Value load_if(ConstContiguousIndices a, Int i, bool in_range) {
    return static_cast<int32_t>(load_word_if(a.as<IndexLayout::kI32>().address(i), in_range));
  }
  /// The element, or `other` where in_range is false. Then what `readable` begins with is read: no
  /// branch, so that several loads go out one after the other.
  template <class Int>
  static __device__ Value load_or(ConstContiguousIndices a, Int i, bool in_range, Number other,
                                  ConstContiguousIndices readable) {
    const std::byte* const at = a.as<IndexLayout::kI32>().address(i);
    const std::byte* const first = readable.as<IndexLayout::kI32>().address(0);
    const Number value = *reinterpret_cast<const int32_t*>(in_range ? at : first);
    return in_range ? value : other;
  }
  template <class Int>
  static __device__ void store(ContiguousIndices a, Int i, Number x) {
    *reinterpret_cast<int32_t*>(a.as<IndexLayout::kI32>().address(i)) = x;
  }
  static __device__ int32_t place(Number x) { return x; }
  static __device__ Number sum(Number a, Number b) {
    return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
  }
  static __device__ Number difference(Number a, Number b) {
    return static_cast<int32_t>(static_cast<uint32_t>(a) - static_cast<uint32_t>(b));
  }
};

template <>
struct Tensors<IndexLayout::kMixed> {
  using Number = int64_t;
  /// An element on its way: nothing is computed of it before number() or place(). Its words are
  /// loaded one by one: a load of 8 bytes would have to wait for one of 4 into the same register.
  struct Value {
    uint32_t low, high;
    bool is_int64;
  };

  static __device__ Number number(const Value& x) {
    const auto sign = static_cast<uint32_t>(static_cast<int32_t>(x.low) >> 31);
    return static_cast<int64_t>(uint64_t{x.is_int64 ? x.high : sign} << 32 | x.low);
  }
  template <class Int>
  static __device__ Value load_if(ConstContiguousIndices a, Int i, bool in_range) {
    const uint32_t wide = int64_bit(a);
    return load({0, 0, wide != 0}, address(a, i, wide), in_range, wide);
  }
  template <class Int>
  static __device__ Value load_or(ConstContiguousIndices a, Int i, bool in_range, Number other,
                                  ConstContiguousIndices /*readable*/) {
    const uint32_t wide = int64_bit(a);
    return load(
        {static_cast<uint32_t>(other), static_cast<uint32_t>(other >> 32), wide != 0 || !in_range},
        address(a, i, wide), in_range, wide);
  }
  template <class Int>
  static __device__ void store(ContiguousIndices a, Int i, Number x) {
    const uint32_t wide = int64_bit(a);
    asm volatile(
        "{\n"
        "  .reg .pred wide;\n"
        "  setp.ne.u32 wide, %3, 0;\n"
        "  @!wide st.global.b32 [%0], %1;\n"
        "  @wide st.global.v2.b32 [%0], {%1, %2};\n"
        "}" ::"l"(address(a, i, wide)),
        "r"(static_cast<uint32_t>(x)), "r"(static_cast<uint32_t>(x >> 32)), "r"(wide)
        : "memory");
  }
  /// Where a row begins or ends. What lies outside of 32 bits lies outside of all tensors.
  static __device__ int32_t place(Number x) {
    const auto low = static_cast<int32_t>(x), high = static_cast<int32_t>(x >> 32);
    return high == low >> 31 ? low : high >> 31 ^ 0x7fffffff;
  }
  static __device__ int32_t place(const Value& x) {
    const auto low = static_cast<int32_t>(x.low), high = static_cast<int32_t>(x.high);
    return x.is_int64 && high != low >> 31 ? high >> 31 ^ 0x7fffffff : low;
  }
  static __device__ Number sum(Number a, Number b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
  static __device__ Number difference(Number a, Number b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
  }

 private:
  /// 1 for i64, else 0: so the compiler asks one word of the address alone.
  template <class Byte>
  static __device__ uint32_t int64_bit(const IndexVector<Byte, IndexLayout::kMixed>& a) {
    uint32_t wide;
    asm("mov.b32 %0, %1;" : "=r"(wide) : "r"(static_cast<uint32_t>(a.is_int64())));
    return wide;
  }
  /// Of element i.
  template <class Byte>
  static __device__ Byte* address(const IndexVector<Byte, IndexLayout::kMixed>& a, int64_t i,
                                  uint32_t wide) {
    return a.address(0) + i * (4 + 4 * wide);
  }
  /// The same of an element that is there, or that is not looked at: one multiplication.
  template <class Byte>
  static __device__ Byte* address(const IndexVector<Byte, IndexLayout::kMixed>& a, int32_t i,
                                  uint32_t wide) {
    return a.address(0) + uint64_t{static_cast<uint32_t>(i)} * (4 + 4 * wide);
  }
  static __device__ Value load(Value x, const std::byte* at, bool in_range, uint32_t wide) {
    asm volatile(
        "{\n"
        "  .reg .pred there, wide;\n"
        "  setp.ne.u32 there, %3, 0;\n"
        "  setp.ne.and.u32 wide, %4, 0, there;\n"
        "  @there ld.global.b32 %0, [%2];\n"
        "  @wide ld.global.b32 %1, [%2 + 4];\n"
        "}"
        : "+r"(x.low), "+r"(x.high)
        : "l"(at), "r"(static_cast<uint32_t>(in_range)), "r"(wide));
    return x;
  }
};

// Members stand in the order in which they are needed.

/// block_tables[a][element - begin] = ragged[element]
template <IndexLayout kLayout>
struct ContiguousToPadded {
  using T = Tensors<kLayout>;
  using Number = typename T::Number;
  using Value = typename T::Value;
  using Row = ContiguousRow<int32_t>;

  ConstContiguousIndices starts;
  int32_t num_rows, size;
  ConstContiguousIndices ragged;
  int32_t width, row_stride;
  ContiguousIndices block_tables;

  struct Facts {};
  __device__ Facts facts(int, bool) const { return {}; }
  __device__ Row row(int r, const Value& start, const Value& end, Facts) const {
    return {T::place(start), T::place(end), r, 0};
  }
  __device__ static bool fills() { return false; }
  __device__ bool has(int32_t element, const Row& row) const {
    return is_within(
        static_cast<int32_t>(static_cast<uint32_t>(element) - static_cast<uint32_t>(row.begin)),
        width);
  }
  __device__ Value fetch(int32_t element, const Row&, bool is_copied) const {
    return T::load_or(ragged, element, is_copied, 0, starts);
  }
  __device__ void put(int32_t element, const Row& row, Number value) const {
    T::store(block_tables, int64_t{row.a} * row_stride + (element - row.begin), value);
  }
};

/// all_input_ids[b][a + element] = next_input_ids[element]
template <IndexLayout kLayout>
struct ContiguousCopyNext {
  using T = Tensors<kLayout>;
  using Number = typename T::Number;
  using Value = typename T::Value;
  using Row = ContiguousRow<int32_t>;

  ConstContiguousIndices starts, cache_lengths, input_lengths, prompt_lengths;
  int32_t num_rows, size;
  ConstContiguousIndices next_input_ids;
  int32_t width, row_stride;
  ContiguousIndices all_input_ids;

  struct Facts {
    Value cache, input, prompt;
  };
  __device__ Facts facts(int r, bool is_row) const {
    return {T::load_if(cache_lengths, r, is_row), T::load_if(input_lengths, r, is_row),
            T::load_if(prompt_lengths, r, is_row)};
  }
  __device__ Row row(int r, const Value& start, const Value& end, const Facts& f) const {
    // From an element to its position; those within the prompt are left out.
    const Number first = T::number(start);
    const Number shift = T::difference(T::sum(T::number(f.cache), T::number(f.input)), first);
    return {T::place(larger(first, T::difference(T::number(f.prompt), shift))), T::place(end),
            T::place(shift), r};
  }
  __device__ static bool fills() { return false; }
  __device__ bool has(int32_t element, const Row& row) const {
    return is_within(place_behind(element, row.a), width);
  }
  __device__ Value fetch(int32_t element, const Row&, bool is_copied) const {
    return T::load_or(next_input_ids, element, is_copied, 0, starts);
  }
  __device__ void put(int32_t element, const Row& row, Number value) const {
    T::store(all_input_ids, int64_t{row.b} * row_stride + place_behind(element, row.a), value);
  }
};

/// position_ids[element] = a + element, slot_indices[element] = b + element
template <IndexLayout kLayout>
struct ContiguousPositionSlots {
  using T = Tensors<kLayout>;
  using Number = typename T::Number;
  using Value = typename T::Value;
  using Row = ContiguousRow<Number>;

  ConstContiguousIndices starts, cache_lengths, cu_slots;
  int32_t num_rows, size, num_positions, num_slots;
  ContiguousIndices position_ids, slot_indices;

  struct Facts {
    Value cache, slot;
  };
  __device__ Facts facts(int r, bool is_row) const {
    return {T::load_if(cache_lengths, r, is_row), T::load_if(cu_slots, r, is_row && num_slots > 0)};
  }
  __device__ Row row(int, const Value& start, const Value& end, const Facts& f) const {
    const Number shift = T::difference(T::number(f.cache), T::number(start));
    return {T::place(start), T::place(end), shift, T::sum(shift, T::number(f.slot))};
  }
  __device__ static bool fills() { return false; }
  __device__ bool has(int32_t, const Row&) const { return true; }
  __device__ Value fetch(int32_t, const Row&, bool) const { return {}; }
  __device__ void put(int32_t element, const Row& row, Number) const {
    if (element < num_positions) T::store(position_ids, element, T::sum(row.a, element));
    if (element < num_slots) T::store(slot_indices, element, T::sum(row.b, element));
  }
};

/// filtered_slots[element] = slots[a + element]
template <IndexLayout kLayout>
struct ContiguousFilterSlots {
  using T = Tensors<kLayout>;
  using Number = typename T::Number;
  using Value = typename T::Value;
  using Row = ContiguousRow<int32_t>;

  ConstContiguousIndices starts, slots_start;
  int32_t num_rows, size;
  ConstContiguousIndices slots;
  ContiguousIndices filtered_slots;
  Number fill_value;
  int32_t num_slots;
  bool has_fill;

  struct Facts {
    Value from;
  };
  __device__ Facts facts(int r, bool is_row) const { return {T::load_if(slots_start, r, is_row)}; }
  __device__ Row row(int, const Value& start, const Value& end, const Facts& f) const {
    return {T::place(start), T::place(end),
            T::place(T::difference(T::number(f.from), T::number(start))), 0};
  }
  __device__ bool fills() const { return has_fill; }
  __device__ bool has(int32_t element, const Row& row) const {
    return is_within(place_behind(element, row.a), num_slots);
  }
  __device__ Value fetch(int32_t element, const Row& row, bool is_copied) const {
    return T::load_or(slots, place_behind(element, row.a), is_copied, fill_value, starts);
  }
  __device__ void put(int32_t element, const Row&, Number value) const {
    T::store(filtered_slots, element, value);
  }
};

// The four conversions whose rows have given starts.
template <int kPerLane, class Op>
__global__ void __launch_bounds__(kRowThreads) contiguous_kernel(const __grid_constant__ Op op) {
  __shared__ ContiguousWindow<kPerLane, typename Op::Row> window;
  using Value = typename Op::Value;
  const int r = threadIdx.x;
  const bool is_row = r < op.num_rows;
  clear(window);
  const ContiguousChunk chunk = ContiguousChunk::of_block(op.size, kPerLane);
  __syncthreads();  // while the kernel in front still runs
  begin_early(op);
  const Value start = Op::T::load_if(op.starts, r, is_row),
              end = Op::T::load_if(op.starts, r + 1, is_row);
  const typename Op::Facts facts = op.facts(r, is_row);
  set_row(window, chunk, op.row(r, start, end, facts));  // of no row: zeros, an empty one
  __syncthreads();
  write_chunk(op, window, chunk);
}

/// ragged[element] = block_tables[a][element - begin]
template <IndexLayout kLayout>
struct ContiguousToRagged {
  using T = Tensors<kLayout>;
  using Number = typename T::Number;
  using Value = typename T::Value;
  using Row = ContiguousRow<int32_t>;

  ConstContiguousIndices input_lengths, cache_lengths;
  int32_t num_rows, size;
  ConstContiguousIndices block_tables;
  int32_t width, row_stride;
  ContiguousIndices ragged;
  Number fill_value;
  bool has_fill;

  __device__ bool fills() const { return has_fill; }
  __device__ bool has(int32_t element, const Row& row) const { return element - row.begin < width; }
  __device__ Value fetch(int32_t element, const Row& row, bool is_copied) const {
    return T::load_or(block_tables, int64_t{row.a} * row_stride + (element - row.begin), is_copied,
                      fill_value, input_lengths);
  }
  __device__ void put(int32_t element, const Row&, Number value) const {
    T::store(ragged, element, value);
  }
};

// Every block adds up all lengths: that is cheaper than to wait for another block, and no block
// waits.
template <int kPerLane, class Op>
__global__ void __launch_bounds__(kRowThreads)
    contiguous_to_ragged_kernel(const __grid_constant__ Op op) {
  __shared__ ContiguousWindow<kPerLane, typename Op::Row> window;
  __shared__ uint32_t scratch[kRowThreads / 32];  // [warps]
  const int r = threadIdx.x;
  const bool is_row = r < op.num_rows;
  clear(window);
  const ContiguousChunk chunk = ContiguousChunk::of_block(op.size, kPerLane);
  begin_early(op);
  const typename Op::Value input = Op::T::load_if(op.input_lengths, r, is_row),
                           cache = Op::T::load_if(op.cache_lengths, r, is_row);
  const int64_t asked =
      Tensors<IndexLayout::kMixed>::sum(Op::T::number(input), Op::T::number(cache));
  const auto length = static_cast<int32_t>(larger(int64_t{0}, smaller(asked, int64_t{op.size})));
  uint32_t total;
  const auto start = static_cast<int32_t>(
      block_sum_before(static_cast<uint32_t>(length), scratch, total));  // with a barrier
  set_row(window, chunk, typename Op::Row{start, start + length, r, 0});
  __syncthreads();
  write_chunk(op, window, chunk);
}

/// Launches the kernel for the choice's elements per lane.
template <class Op>
void launch_contiguous(const ExecContext& ctx, const ConversionChoice& choice, const Op& op) {
  if (choice.per_thread == 1) {
    launch_early<contiguous_kernel<1, Op>>(ctx, choice.blocks, kRowThreads, op);
  } else {
    launch_early<contiguous_kernel<kManyPerThread, Op>>(ctx, choice.blocks, kRowThreads, op);
  }
}
template <IndexLayout kLayout>
void launch_contiguous(const ExecContext& ctx, const ConversionChoice& choice,
                       const ContiguousToRagged<kLayout>& op) {
  using Op = ContiguousToRagged<kLayout>;
  if (choice.per_thread == 1) {
    launch_early<contiguous_to_ragged_kernel<1, Op>>(ctx, choice.blocks, kRowThreads, op);
  } else {
    launch_early<contiguous_to_ragged_kernel<kManyPerThread, Op>>(ctx, choice.blocks, kRowThreads,
                                                                  op);
  }
}
/// Launches make(layout) for what the tensors of a call are.
template <class Make, class... Lists>
void launch_for(const ExecContext& ctx, const ConversionChoice& choice, const Make& make,
                const Lists&... tensors) {
  if ((is_i32(tensors) && ...)) {
    launch_contiguous(ctx, choice, make.template operator()<IndexLayout::kI32>());
  } else {
    launch_contiguous(ctx, choice, make.template operator()<IndexLayout::kMixed>());
  }
}

template <class Byte>
auto indices_of(const BasicIndexList<Byte>& t) {
  return IndexVector<Byte, IndexLayout::kMixed>(t.data, t.step_bytes(), t.size > 0 && t.is_int64);
}
template <class Byte>
auto indices_of(const BasicIndexTable<Byte>& t) {
  return indices_of(t[0]);
}
int32_t narrow(int64_t x) { return static_cast<int32_t>(x); }
template <IndexLayout kLayout>
auto fill_of(const Fill& fill) {
  return static_cast<typename Tensors<kLayout>::Number>(fill.value);
}

}  // namespace

void contiguous_block_tables_to_ragged(const ExecContext& ctx, const BlockTablesToRaggedParams& p,
                                       const ConversionChoice& choice) {
  const auto make = [&]<IndexLayout kLayout>() {
    return ContiguousToRagged<kLayout>{.input_lengths = indices_of(p.input_lengths),
                                       .cache_lengths = indices_of(p.cache_lengths),
                                       .num_rows = narrow(p.num_seqs),
                                       .size = narrow(p.ragged.size),
                                       .block_tables = indices_of(p.block_tables),
                                       .width = narrow(p.block_tables.width),
                                       .row_stride = narrow(p.block_tables.row_stride),
                                       .ragged = indices_of(p.ragged),
                                       .fill_value = fill_of<kLayout>(p.fill),
                                       .has_fill = p.fill.on};
  };
  launch_for(ctx, choice, make, p.ragged, p.block_tables, p.input_lengths, p.cache_lengths);
}

void contiguous_block_tables_to_padded(const ExecContext& ctx, const BlockTablesToPaddedParams& p,
                                       const ConversionChoice& choice) {
  const auto make = [&]<IndexLayout kLayout>() {
    return ContiguousToPadded<kLayout>{.starts = indices_of(p.cu_seqlens),
                                       .num_rows = narrow(p.num_seqs),
                                       .size = narrow(p.ragged.size),
                                       .ragged = indices_of(p.ragged),
                                       .width = narrow(p.block_tables.width),
                                       .row_stride = narrow(p.block_tables.row_stride),
                                       .block_tables = indices_of(p.block_tables)};
  };
  launch_for(ctx, choice, make, p.block_tables, p.ragged, p.cu_seqlens);
}

void contiguous_copy_next_input_ids(const ExecContext& ctx, const CopyNextInputIdsParams& p,
                                    const ConversionChoice& choice) {
  const auto make = [&]<IndexLayout kLayout>() {
    return ContiguousCopyNext<kLayout>{.starts = indices_of(p.cu_accepted_ids),
                                       .cache_lengths = indices_of(p.cache_lengths),
                                       .input_lengths = indices_of(p.input_lengths),
                                       .prompt_lengths = indices_of(p.prompt_lengths),
                                       .num_rows = narrow(p.num_seqs),
                                       .size = narrow(p.next_input_ids.size),
                                       .next_input_ids = indices_of(p.next_input_ids),
                                       .width = narrow(p.all_input_ids.width),
                                       .row_stride = narrow(p.all_input_ids.row_stride),
                                       .all_input_ids = indices_of(p.all_input_ids)};
  };
  launch_for(ctx, choice, make, p.all_input_ids, p.next_input_ids, p.cu_accepted_ids,
             p.cache_lengths, p.input_lengths, p.prompt_lengths);
}

void contiguous_position_slot_ids(const ExecContext& ctx, const PositionSlotIdsParams& p,
                                  const ConversionChoice& choice) {
  const int64_t size = std::max(p.position_ids.size, p.slot_indices.size);
  const auto make = [&]<IndexLayout kLayout>() {
    return ContiguousPositionSlots<kLayout>{.starts = indices_of(p.cu_seqlens),
                                            .cache_lengths = indices_of(p.cache_lengths),
                                            .cu_slots = indices_of(p.cu_slots),
                                            .num_rows = narrow(p.num_seqs),
                                            .size = narrow(size),
                                            .num_positions = narrow(p.position_ids.size),
                                            .num_slots = narrow(p.slot_indices.size),
                                            .position_ids = indices_of(p.position_ids),
                                            .slot_indices = indices_of(p.slot_indices)};
  };
  launch_for(ctx, choice, make, p.position_ids, p.slot_indices, p.cache_lengths, p.cu_seqlens,
             p.cu_slots);
}

void contiguous_slots_filtering(const ExecContext& ctx, const SlotsFilteringParams& p,
                                const ConversionChoice& choice) {
  const auto make = [&]<IndexLayout kLayout>() {
    return ContiguousFilterSlots<kLayout>{.starts = indices_of(p.cu_slots),
                                          .slots_start = indices_of(p.slots_start),
                                          .num_rows = narrow(p.num_seqs),
                                          .size = narrow(p.filtered_slots.size),
                                          .slots = indices_of(p.slots),
                                          .filtered_slots = indices_of(p.filtered_slots),
                                          .fill_value = fill_of<kLayout>(p.fill),
                                          .num_slots = narrow(p.slots.size),
                                          .has_fill = p.fill.on};
  };
  launch_for(ctx, choice, make, p.filtered_slots, p.slots, p.cu_slots, p.slots_start);
}

}  // namespace heddle::cuda::metadata
