#include <algorithm>
#include <type_traits>

#include "cuda/check.h"

#include "ops/metadata/conversions_kernels.h"
#include "ops/metadata/ragged_rows_cuda.h"

// One launch each. What a kernel waits for, one after the other: starts or lengths with whatever else it needs of a row, all at
// once; the search of the row in shared memory; the element itself.

namespace heddle::cuda {
namespace {

/// block_tables[row][j] = ragged[element]
struct ToPadded {
  const BlockTablesToPaddedParams& p;

  __device__ RowFacts facts(int64_t /*row*/) const { return {}; }
  __device__ bool fetch(RowFacts, int64_t, int64_t j, int64_t element, RawIndex& value) const {
    if (j >= p.block_tables.width) return false;
    value = load_raw(p.ragged, element);
    return true;
  }
  __device__ void put(RowFacts, int64_t row, int64_t j, int64_t, int64_t value) const {
    store(p.block_tables, row, j, value);
  }
};

/// all_input_ids[row][a + j] = next_input_ids[element] from position b on
struct CopyNext {
  const CopyNextInputIdsParams& p;

  __device__ RowFacts facts(int64_t row) const {
    return {held(load(p.cache_lengths, row)) + held(load(p.input_lengths, row)),
            held(load(p.prompt_lengths, row))};
  }
  __device__ bool fetch(RowFacts f, int64_t, int64_t j, int64_t element, RawIndex& value) const {
    const int64_t position = f.a + j;
    if (position < f.b || position < 0 || position >= p.all_input_ids.width) return false;
    value = load_raw(p.next_input_ids, element);
    return true;
  }
  __device__ void put(RowFacts f, int64_t row, int64_t j, int64_t, int64_t value) const {
    store(p.all_input_ids, row, f.a + j, value);
  }
};

/// position_ids[element] = a + j, slot_indices[element] = b + j
struct PositionSlots {
  const PositionSlotIdsParams& p;

  __device__ RowFacts facts(int64_t row) const {
    const int64_t position = held(load(p.cache_lengths, row));
    return {position, p.slot_indices.size > 0 ? position + held(load(p.cu_slots, row)) : 0};
  }
  __device__ bool fetch(RowFacts, int64_t, int64_t, int64_t, RawIndex& value) const {
    value = {};
    return true;
  }
  __device__ void put(RowFacts f, int64_t, int64_t j, int64_t element, int64_t) const {
    if (element < p.position_ids.size) store(p.position_ids, element, f.a + j);
    if (element < p.slot_indices.size) store(p.slot_indices, element, f.b + j);
  }
};

/// filtered_slots[element] = slots[a + j]
struct FilterSlots {
  const SlotsFilteringParams& p;

  __device__ RowFacts facts(int64_t row) const { return {held(load(p.slots_start, row)), 0}; }
  __device__ bool fetch(RowFacts f, int64_t, int64_t j, int64_t, RawIndex& value) const {
    const int64_t from = f.a + j;
    value = RawIndex::of(p.fill.value);
    if (from < 0 || from >= p.slots.size) return p.fill.on;
    value = load_raw(p.slots, from);
    return true;
  }
  __device__ void put(RowFacts, int64_t, int64_t, int64_t element, int64_t value) const {
    store(p.filtered_slots, element, value);
  }
};

// The four conversions whose rows have given starts: Op says what becomes of element j of a row (ragged_rows_cuda.h).
// Blocks of kRowThreads, any grid; chunks of the ragged array go round the blocks.
template <int kPerThread>
__global__ void __launch_bounds__(kRowThreads)
    to_padded_kernel(const __grid_constant__ BlockTablesToPaddedParams p) {
  __shared__ RowWindow window;
  write_ragged<kPerThread>(ToPadded{p}, p.cu_seqlens, p.num_seqs, p.ragged.size, window);
}
template <int kPerThread>
__global__ void __launch_bounds__(kRowThreads)
    copy_next_kernel(const __grid_constant__ CopyNextInputIdsParams p) {
  __shared__ RowWindow window;
  write_ragged<kPerThread>(CopyNext{p}, p.cu_accepted_ids, p.num_seqs, p.next_input_ids.size,
                           window);
}
template <int kPerThread>
__global__ void __launch_bounds__(kRowThreads)
    position_slots_kernel(const __grid_constant__ PositionSlotIdsParams p) {
  __shared__ RowWindow window;
  write_ragged<kPerThread>(PositionSlots{p}, p.cu_seqlens, p.num_seqs,
                           larger(p.position_ids.size, p.slot_indices.size), window);
}
template <int kPerThread>
__global__ void __launch_bounds__(kRowThreads)
    filter_slots_kernel(const __grid_constant__ SlotsFilteringParams p) {
  __shared__ RowWindow window;
  const int64_t size = p.filtered_slots.size;
  if (p.fill.on) {  // what lies in front of the first row and behind the last one
    const int64_t begin = larger(0, smaller(load(p.cu_slots, 0), size));
    const int64_t end = larger(begin, smaller(load(p.cu_slots, p.num_seqs), size));
    const int64_t step = int64_t{gridDim.x} * kRowThreads;
    for (int64_t i = int64_t{blockIdx.x} * kRowThreads + threadIdx.x; i < size; i += step) {
      if (i < begin || i >= end) store(p.filtered_slots, i, p.fill.value);
    }
  }
  write_ragged<kPerThread>(FilterSlots{p}, p.cu_slots, p.num_seqs, size, window);
}

// block_tables whole: each element gets its entry of `ragged` or the fill value, so elements balance and nothing is searched.
template <int kPerThread>
__global__ void __launch_bounds__(kRowThreads)
    to_filled_padded_kernel(const __grid_constant__ BlockTablesToPaddedParams p) {
  constexpr int64_t kChunk = int64_t{kPerThread} * kRowThreads;
  const int64_t width = p.block_tables.width, size = p.num_seqs * width;
  for (int64_t first = blockIdx.x * kChunk; first < size; first += gridDim.x * kChunk) {
    RawIndex value[kPerThread];
    int64_t row[kPerThread];
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) {
      const int64_t element = first + k * kRowThreads + threadIdx.x;
      if (element >= size) continue;
      row[k] = divide(element, width);
      const int64_t j = element - row[k] * width, start = held(load(p.cu_seqlens, row[k])),
                    end = held(load(p.cu_seqlens, row[k] + 1)), from = start + j;
      const bool is_there = from < end && from >= 0 && from < p.ragged.size;
      value[k] = is_there ? load_raw(p.ragged, from) : RawIndex::of(p.fill.value);
    }
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) {
      const int64_t element = first + k * kRowThreads + threadIdx.x;
      if (element < size) store(p.block_tables, row[k], element - row[k] * width, value[k].value());
    }
  }
}

/// ragged[element] = block_tables[row][j]
struct ToRagged {
  const BlockTablesToRaggedParams& p;

  __device__ bool fetch(RowFacts, int64_t row, int64_t j, int64_t, RawIndex& value) const {
    value = RawIndex::of(p.fill.value);
    if (j >= p.block_tables.width) return p.fill.on;
    value = load_raw(p.block_tables, row, j);
    return true;
  }
  __device__ void put(RowFacts, int64_t, int64_t, int64_t element, int64_t value) const {
    store(p.ragged, element, value);
  }
};

__device__ int64_t row_length(const BlockTablesToRaggedParams& p, int64_t row) {
  if (row >= p.num_seqs) return 0;
  return length_from(held(load(p.input_lengths, row)) + held(load(p.cache_lengths, row)));
}

// ragged[start(i) + j] = block_tables[i][j]. Every block adds up all lengths in front of its chunks, kRowThreads rows at a time:
// that is cheaper than to wait for another block, and no block waits. Blocks of kRowThreads, any grid.
template <int kPerThread>
__global__ void __launch_bounds__(kRowThreads)
    to_ragged_kernel(const __grid_constant__ BlockTablesToRaggedParams p) {
  __shared__ int64_t starts[kRowThreads + 1];
  __shared__ Sums<1> scratch[kMaxWarps];
  constexpr int64_t kChunk = int64_t{kPerThread} * kRowThreads;
  const int64_t size = p.ragged.size, step = int64_t{gridDim.x} * kChunk;
  int64_t chunk = blockIdx.x * kChunk;  // the first element of this block's next chunk
  int64_t start = 0;                    // of the window's rows
  int64_t length = row_length(p, threadIdx.x);
  for (int64_t base = 0; base < p.num_seqs && chunk < size; base += kRowThreads) {
    Sums<1> total;
    const Sums<1> before = block_sums_before(Sums<1>{length}, Sums<1>{kHuge}, scratch, total);
    length = row_length(p, base + kRowThreads + threadIdx.x);  // of the next window
    const int64_t end = smaller(start + total.of[0], kHuge);
    starts[threadIdx.x] = smaller(start + before.of[0], kHuge);
    if (threadIdx.x == 0) starts[kRowThreads] = end;
    __syncthreads();
    for (; chunk < size && chunk < end; chunk += step) {
      const int64_t last = smaller(chunk + kChunk, size);
      write_elements<kPerThread>(ToRagged{p}, starts, nullptr, base, kRowThreads,
                                 larger(chunk, start), smaller(last, end));
      if (last > end) break;  // the rest of the chunk is the next window's
    }
    __syncthreads();  // before the next window's sums and starts
    start = end;
  }
  if (!p.fill.on) return;
  for (; chunk < size; chunk += step) {
    const int64_t last = smaller(chunk + kChunk, size);
    for (int64_t i = larger(chunk, start) + threadIdx.x; i < last; i += kRowThreads) {
      store(p.ragged, i, p.fill.value);
    }
  }
}

/// Below this many elements per multiprocessor one block per kRowThreads elements ends sooner than fewer, longer ones.
constexpr int64_t kShortPerSm = 4 * kRowThreads;
constexpr int64_t kBlocksPerSm = 8;  // as many threads as a multiprocessor holds

/// launch(elements per thread as a constant, blocks) for `size` elements.
template <class Launch>
void launch_for(const ExecContext& ctx, int64_t size, const Launch& launch) {
  if (size <= 0) return;
  const auto blocks = [&](int64_t per_thread) {
    const int64_t chunk = per_thread * kRowThreads;
    return static_cast<unsigned>(
        std::min((size + chunk - 1) / chunk, kBlocksPerSm * ctx.info.num_sms));
  };
  if (size <= kShortPerSm * ctx.info.num_sms) {
    launch(std::integral_constant<int, 1>{}, blocks(1));
  } else {
    launch(std::integral_constant<int, kManyPerThread>{}, blocks(kManyPerThread));
  }
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void block_tables_to_ragged(const ExecContext& ctx, const BlockTablesToRaggedParams& p) {
  launch_for(ctx, p.ragged.size, [&](auto per_thread, unsigned blocks) {
    to_ragged_kernel<per_thread><<<blocks, kRowThreads, 0, ctx.stream>>>(p);
  });
}

void block_tables_to_padded(const ExecContext& ctx, const BlockTablesToPaddedParams& p) {
  if (p.fill.on) {
    launch_for(ctx, p.num_seqs * p.block_tables.width, [&](auto per_thread, unsigned blocks) {
      to_filled_padded_kernel<per_thread><<<blocks, kRowThreads, 0, ctx.stream>>>(p);
    });
  } else if (p.num_seqs > 0) {
    launch_for(ctx, p.ragged.size, [&](auto per_thread, unsigned blocks) {
      to_padded_kernel<per_thread><<<blocks, kRowThreads, 0, ctx.stream>>>(p);
    });
  }
}

void copy_next_input_ids(const ExecContext& ctx, const CopyNextInputIdsParams& p) {
  if (p.num_seqs == 0) return;
  launch_for(ctx, p.next_input_ids.size, [&](auto per_thread, unsigned blocks) {
    copy_next_kernel<per_thread><<<blocks, kRowThreads, 0, ctx.stream>>>(p);
  });
}

void prepare_position_slot_ids(const ExecContext& ctx, const PositionSlotIdsParams& p) {
  if (p.num_seqs == 0) return;
  const int64_t size = std::max(p.position_ids.size, p.slot_indices.size);
  launch_for(ctx, size, [&](auto per_thread, unsigned blocks) {
    position_slots_kernel<per_thread><<<blocks, kRowThreads, 0, ctx.stream>>>(p);
  });
}

void slots_filtering(const ExecContext& ctx, const SlotsFilteringParams& p) {
  if (p.num_seqs == 0 && !p.fill.on) return;
  launch_for(ctx, p.filtered_slots.size, [&](auto per_thread, unsigned blocks) {
    filter_slots_kernel<per_thread><<<blocks, kRowThreads, 0, ctx.stream>>>(p);
  });
}

}  // namespace heddle::cuda
