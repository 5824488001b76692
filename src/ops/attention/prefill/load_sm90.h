#pragma once

// The role load of the prefill kernel for compute capability 9.0.

#include <cstdint>

#include "cuda/memory_cuda.h"

#include "ops/attention/prefill/prefill_sm90_params.h"
#include "ops/attention/prefill/shared_sm90.h"

namespace heddle::cuda::attention::prefill {

/// The items of a block, whose numbers come from a counter that all blocks share, or without one
/// in turn. The last tiles of a prompt, which see the most keys, come first.
struct ItemNumbers {
  uint32_t place = 0;
  bool is_first = true;

  /// By a whole warp. Negative: there are no more.
  __device__ int take(const PrefillSm90Params& p) {
    if (is_first) {
      place = blockIdx.x;
    } else if (p.counter == nullptr) {
      place += gridDim.x;
    } else {
      if (threadIdx.x % 32 == 0) place = gridDim.x + atomicAdd(p.counter, 1u);
      place = __shfl_sync(~0u, place, 0);
    }
    is_first = false;
    return p.num_items - 1 - static_cast<int>(place);
  }
  /// By one thread, once the block takes no more: the last block leaves the counters as they were.
  __device__ static void end(const PrefillSm90Params& p) {
    if (p.counter == nullptr) return;
    // Every block has taken its last number.
    if (add_to_counter(p.counter + 1, 1) == gridDim.x - 1) p.counter[0] = p.counter[1] = 0;
  }
};

/// Copies of a thread: of rows row, row + 16, ... the vector lane % 8 of each block of columns.
/// So 8 lanes copy a line. Lane l keeps the address of row 16 (l / 4) + 4 warp + l % 4, and gives
/// it to those that copy it.
template <class S>
struct RowCopier {
  static constexpr int kRowStep = 16, kBatch = 4;

  int lane, own_row, vectors;  // vectors: of this thread that the heads have
  uint32_t to;                 // of its first row

  __device__ explicit RowCopier(int head_dim)
      : lane(static_cast<int>(threadIdx.x) % 32),
        own_row(lane / 4 * kRowStep + static_cast<int>(threadIdx.x) / 32 * 4 + lane % 4),
        vectors((head_dim / 8 - lane % 8 + 7) / 8),
        to(swizzled_offset<S>(static_cast<int>(threadIdx.x) / 8, lane % 8)) {}

  /// The rows whose lanes have addresses, zeros for 0.
  __device__ void copy(std::byte* tile, int64_t own_address) const {
    const bool is_whole = own_address != 0 && vectors == S::kColumnBlocks;
    if (__all_sync(~0u, is_whole)) {
      copy<true>(tile, own_address);
    } else {
      copy<false>(tile, own_address);
    }
  }

 private:
  template <bool kIsWhole>
  __device__ void copy(std::byte* tile, int64_t own_address) const {
    const uint32_t tile_to = shared_address(tile) + to;
#pragma unroll
    for (int first = 0; first < S::kKeys / kRowStep; first += kBatch) {
      int64_t rows[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        rows[i] = __shfl_sync(~0u, own_address, (first + i) * 4 + lane / 8);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const auto* const from = reinterpret_cast<const std::byte*>(rows[i]) + lane % 8 * 16;
#pragma unroll
        for (int v = 0; v < S::kColumnBlocks; ++v) {
          const uint32_t vector_to =
              tile_to + (first + i) * kRowStep * kSwizzledRowBytes + v * S::kBlockBytes;
          if constexpr (kIsWhole) {
            copy_async_16(vector_to, from + v * 128);
          } else {
            copy_async_16_if(vector_to, from + v * 128, rows[i] != 0 && v < vectors);
          }
        }
      }
    }
  }
};

/// The page of a key: the table's entry, and whether it is a page. One that is none is reported,
/// and `item` learns of it.
struct KeyPage {
  int64_t entry = 0;

  __device__ void look_up(const PrefillParams& p, const PrefillItem& item, int key) {
    if (key < item.num_keys) {
      entry = p.call.kv.pages[item.first_page + page_slot(p.call.kv, key).page];
    }
  }
  [[nodiscard]] __device__ bool is_there(const PrefillParams& p, PrefillItem& item, int key) const {
    if (key >= item.num_keys) return false;
    if (is_page(p.call.kv, entry)) return true;
    if (atomicExch(&item.has_no_page[0], 1) == 0) {
      report_fault_inline(p.call.kv.faults, "batch_prefill", "pages", item.seq, entry);
    }
    return false;
  }
};

/// Copies of the keys and values of an item, row by row: pages of any size and strides, numbers of
/// a pool or addresses.
template <class S>
class KeyTilesSm90 {
 public:
  __device__ explicit KeyTilesSm90(const PrefillParams& p) : p_(p), copier_(p.call.head_dim) {}

  __device__ void look_up(const PrefillItem& item, int tile) {
    page_.look_up(p_, item, tile * S::kKeys + copier_.own_row);
  }
  /// The tile that was looked up is that of the keys to come, the one before that of the values.
  __device__ void next(PrefillItem& item, int tile) {
    value_ = key_;
    const int key = tile * S::kKeys + copier_.own_row;
    key_ = !page_.is_there(p_, item, key)
               ? 0
               : item.first_key + page_.entry * p_.call.kv.page_step +
                     page_slot(p_.call.kv, key).slot * p_.call.kv.slot_step;
  }
  template <class Ring>
  __device__ void load_keys(Ring& ring, const RingPlace& at, std::byte* to) {
    ring.wait_empty(at);
    copier_.copy(to, key_);
    ring.full[at.stage].arrive_after_copies();
  }
  template <class Ring>
  __device__ void load_values(Ring& ring, const RingPlace& at, std::byte* to) {
    ring.wait_empty(at);
    copier_.copy(to, value_ == 0 ? 0 : value_ + p_.call.kv.value_distance);
    ring.full[at.stage].arrive_after_copies();
  }

 private:
  const PrefillParams& p_;
  RowCopier<S> copier_;
  KeyPage page_;
  int64_t key_ = 0, value_ = 0;
};

template <class S>
__device__ void copy_queries(const PrefillParams& p, const PrefillItem& item, std::byte* to) {
  const RowCopier<S> copier(p.call.head_dim);
  int64_t address = 0;
  if (copier.own_row < item.num_rows) {
    const Row at = row_of(p, item, copier.own_row);
    address = reinterpret_cast<int64_t>(
        p.call.q + ((item.first_token + at.token) * p.call.q_token + at.head * p.call.q_head) * 2);
  }
  copier.copy(to, address);
}

/// Warp 0: the next item of the block, or one without rows after the last.
template <class S>
__device__ void find_next(const PrefillSm90Params& p, ItemNumbers& numbers,
                          PrefillShared<S>& shared, const RingPlace& at) {
  shared.item_ring.wait_empty(at);
  PrefillItem& item = shared.items[at.stage];
  do {
    const int number = numbers.take(p);
    __syncwarp();
    if (number < 0) {
      if (threadIdx.x == 0) item.num_rows = -1;
      __syncwarp();
      break;
    }
    const int place = divide(number, p.common.by_kv_heads);
    const int head = number - place * p.common.call.num_kv_heads;
    find_item<S>(p.common, place, head, item, [&](int seq) {
      const WrongWord word = wrong_word(p.common.call.kv, seq);
      report_fault_inline(p.common.call.kv.faults, "batch_prefill", word.array, seq, word.value);
    });
    __syncwarp();
  } while (item.num_rows == 0);
  shared.item_ring.full[at.stage].arrive();
}

/// Reports sequences whose rows are not rows of q: warps 1 to 3, while the first item is found.
__device__ inline void check_starts_sm90(const PrefillParams& p) {
  constexpr int kThreads = 96;
  for (int64_t seq = int64_t{blockIdx.x} * kThreads + threadIdx.x - 32; seq < p.call.num_seqs;
       seq += int64_t{gridDim.x} * kThreads) {
    const WrongStart start = wrong_start(p, seq);
    if (!start.is_wrong) continue;
    report_fault_inline(p.call.kv.faults, "batch_prefill", "q_indptr", seq, start.value);
  }
}

template <class S>
__device__ void load(const PrefillSm90Params& params, PrefillShared<S>& shared) {
  const bool finds = threadIdx.x < 32;
  KeyTilesSm90<S> tiles(params.common);
  ItemNumbers numbers;
  RingPlace items = RingPlace::of_multiply(), found = RingPlace::of_load();
  RingPlace keys = RingPlace::of_load(), values = RingPlace::of_load();
  uint32_t queries_parity = 1;
  const auto find = [&] {
    if (finds) find_next(params, numbers, shared, found);
    found.advance(S::kItems);
  };
  const auto load_keys = [&] {
    tiles.load_keys(shared.key_ring, keys, shared.keys[keys.stage]);
    keys.advance(S::kStages);
  };
  const auto load_values = [&] {
    tiles.load_values(shared.value_ring, values, shared.values[values.stage]);
    values.advance(S::kStages);
  };
  if (!finds) check_starts_sm90(params.common);
  find();
  while (true) {
    shared.item_ring.wait_full(items);
    PrefillItem& item = shared.items[items.stage];
    if (item.num_rows < 0) break;
    const int begin = item.begin, end = item.end;
    if (begin < end) {
      tiles.look_up(item, begin);
      tiles.next(item, begin);
      tiles.look_up(item, begin + 1);
      load_keys();
      shared.queries_empty.wait(queries_parity);
      copy_queries<S>(params.common, item, shared.queries);
      shared.queries_full.arrive_after_copies();
      queries_parity ^= 1;
    }
#pragma unroll 1
    for (int tile = begin + 1; tile <= end; ++tile) {
      tiles.next(item, tile);
      if (tile < end) {
        tiles.look_up(item, tile + 1);
        load_keys();
      }
      load_values();
      if (tile == begin + 1) find();  // while these tiles are on their way
    }
    if (begin >= end) find();
    if (!finds) shared.item_ring.empty[items.stage].arrive();
    items.advance(S::kItems);
  }
  if (threadIdx.x == 0) ItemNumbers::end(params);
}

}  // namespace heddle::cuda::attention::prefill
