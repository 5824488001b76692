#pragma once

// What a block of the prefill kernel works on, where that lies in shared memory, and the copies
// that bring it there.

#include <cstdint>

#include "cuda/memory_cuda.h"

#include "core/math.h"
#include "ops/attention/device/tree_mask_cuda.h"
#include "ops/attention/prefill/prefill_params.h"

namespace heddle::cuda::attention::prefill {

/// A block has 4 or 2 warps of 16 * kProductRows rows. A row is (query token, query head of the
/// group): row r of a sequence and kv head is token r / group_size and head r % group_size, so that
/// the heads of a group share keys and a tile ends just past the diagonal. Heads up to kHeadDim
/// elements are taken as kHeadDim, zeros after them.
template <int kHeadDim, bool kIsGeneral, bool kHasCodes>
struct Shape {
  static constexpr int kDim = kHeadDim;
  static constexpr bool kGeneral = kIsGeneral, kCodes = kHasCodes;
  static constexpr int kRows = prefill_rows(kDim, kGeneral);
  static constexpr int kProductRows =
      kDim <= 128 ? 2 : 1;  // of 16; their sums fill half the registers
  static constexpr int kWarpRows = 16 * kProductRows, kWarps = kRows / kWarpRows;
  static constexpr int kThreads = kWarps * 32, kKeys = kPrefillTileKeys;
  static constexpr int kRowBytes = 2 * kDim, kTileBytes = kKeys * kRowBytes;
  // Shared memory: queries, a tile of keys, one of values, the addresses of the keys of two tiles,
  // the item.
  static constexpr int kKeysAt = kRows * kRowBytes, kValuesAt = kKeysAt + kTileBytes;
  static constexpr int kAddressesAt = kValuesAt + kTileBytes;
  static constexpr int kItemAt = kAddressesAt + 2 * kKeys * int{sizeof(int64_t)};
  // Codes on their way, kCodeVectors vectors of 16 bytes for each key of a thread, and the scales
  // of keys and values of two tiles.
  static constexpr int kCodeVectors = kDim <= 128 ? 1 : kDim / 128;
  static constexpr int kCodesAt = kItemAt + 128;
  static constexpr int kScalesAt =
      kCodesAt + (kCodes ? kKeys / (kThreads / 8) * kCodeVectors * kThreads * 16 : 0);
  static constexpr int kSharedBytes = kScalesAt + (kCodes ? 4 * kKeys * int{sizeof(float)} : 0);
  // Where rotated queries and keys leave what their rounding takes off; rows begin at multiples of
  // their length.
  static constexpr int kLowQueriesAt = kAddressesAt + 1536, kLowKeysAt = kValuesAt;
  static constexpr int kFrequenciesAt = kLowQueriesAt + kRows * kRowBytes;
  static constexpr int kRotatingBytes = kFrequenciesAt + kDim / 2 * int{sizeof(Turns)};
};

/// Offset of a vector of 8 elements in rows of kDim elements: exchanged by the row's number, so
/// that neither copies nor ldmatrix meet in a bank. Rows begin at multiples of 128 bytes.
template <int kDim>
__device__ constexpr uint32_t vector_offset(int row, int vector) {
  return static_cast<uint32_t>(row * kDim * 2 + (vector ^ (row & 7)) * 16);
}
template <int kDim>
__device__ constexpr uint32_t element_offset(int row, int element) {
  return vector_offset<kDim>(row, element / 8) + static_cast<uint32_t>(element % 8 * 2);
}

/// Up to kRows rows of one sequence and kv head, and what they see. In shared memory, since most of
/// it is seldom read.
struct alignas(16) PrefillItem {
  int64_t first_token;  // row of q that holds the sequence's first query
  int64_t first_page;   // index in the table; negative: the tables are wrong
  int64_t first_key;    // of the kv head: address of the key in slot 0, less that of the page
  int64_t no_page;      // an entry of the table that is no page
  RowTreeMask tree;
  int seq, q_len, kv_len, kv_head;
  /// A key has been met that lies in no page, in an even or odd tile: threads that are still at a
  /// tile do not read what those at the next one write.
  int has_no_page[2];
  int first_row, num_rows;  // of the sequence's q_len * group_size rows; num_rows <= 0: no work

  // The tiles [begin, end) of keys that rows of the item see, of which all rows see [whole_begin,
  // whole_end) whole.
  int begin, end, whole_begin, whole_end;
  int num_keys;            // in the tiles
  int all_begin, all_end;  // keys that all rows see

  [[nodiscard]] __device__ bool has_tree() const { return tree.words != nullptr; }
  [[nodiscard]] __device__ bool is_masked(int tile) const {
    return tile < whole_begin || tile >= whole_end;
  }
};

struct Row {
  int token;  // of the sequence
  int head;   // of q
};

__device__ inline Row row_of(const PrefillParams& p, const PrefillItem& item, int row) {
  const int packed = item.first_row + row, token = divide(packed, p.by_group_size);
  return {token, item.kv_head * p.call.group_size + packed - token * p.call.group_size};
}

/// Keys that a row sees, but for the bits of a tree mask. Rows past the last are taken as that.
__device__ inline KeyRange keys_of_row(const PrefillParams& p, const PrefillItem& item, int row) {
  const int token = row_of(p, item, min(row, item.num_rows - 1)).token;
  return visible_keys(p.call, item.kv_len - item.q_len + token, item.kv_len, item.has_tree());
}

/// A sequence's rows and pages, of a lane: sequence_rows and sequence_pages with all loads at once.
struct PrefillSequence {
  SequenceRows rows;  // none where they are not rows of q
  SequencePages pages;
  bool has_right_rows;

  __device__ PrefillSequence(const PrefillParams& p, int seq) {
    const ConstIndexVector& starts = p.call.q_indptr;
    const LoadedIndex first = load_given(starts, seq), next = load_given(starts, seq + 1);
    pages = sequence_pages(p.call.kv, seq);
    const int64_t begin = first.value(), end = next.value();
    has_right_rows = (begin >= 0) & (begin <= end) & (end <= p.call.num_tokens);
    rows = {begin, has_right_rows ? static_cast<int>(end - begin) : 0};
  }
};

/// The start that is wrong of a sequence whose rows are not rows of q.
struct WrongStart {
  bool is_wrong;
  int64_t value;
};
__device__ inline WrongStart wrong_start(const PrefillParams& p, int64_t seq) {
  const ConstIndexVector& starts = p.call.q_indptr;
  const int64_t begin = starts[seq], end = starts[seq + 1];
  const bool is_begin = begin < 0 || begin > p.call.num_tokens;
  return {is_begin || begin > end || end > p.call.num_tokens, is_begin ? begin : end};
}
/// Reports sequences whose rows are not rows of q. By warps that have nothing else to do while
/// one finds the block's item; all blocks together look at every sequence.
template <class S>
__device__ void check_starts(const PrefillParams& p) {
  const int64_t seq = int64_t{blockIdx.x} * (S::kThreads - 32) + threadIdx.x - 32;
  if (seq >= p.call.num_seqs) return;
  const WrongStart start = wrong_start(p, seq);
  if (start.is_wrong) {
    report_fault(p.call.kv.faults, "batch_prefill", "q_indptr", seq, start.value);
  }
}

template <int kKeys>
__device__ void set_tiles(const PrefillParams& p, int num_rows, PrefillItem& item) {
  const KeyRange first = keys_of_row(p, item, 0), last = keys_of_row(p, item, num_rows - 1);
  const int first_new = item.kv_len - item.q_len;
  const int whole = item.has_tree() ? max(min(first_new, first.end), 0) : first.end;
  item.num_keys = last.end;
  item.all_begin = last.begin;
  item.all_end = whole;
  item.begin = first.begin / kKeys;
  item.end = ceil_div(last.end, kKeys);
  item.whole_begin = ceil_div(last.begin, kKeys);
  item.whole_end = whole / kKeys;
}

/// Finds the item of a block, by one warp. Items are numbered without a table: the tiles of rows of
/// sequence i have the numbers from first_tile(i) on, which are at least as many as it has tiles.
/// The last tiles of a prompt see the most keys and come first. The heads of a tile follow each
/// other. A sequence says by itself whether an item is one of its own; so where starts of others
/// are out of order, which leads the search astray, all are asked. `report` gets a sequence whose
/// tables are wrong.
template <class S, class Report>
__device__ void find_item(const PrefillParams& p, int place, int kv_head, PrefillItem& item,
                          Report&& report) {
  const int lane = static_cast<int>(threadIdx.x % 32), num_seqs = p.call.num_seqs;
  const auto first_tile = [&](int64_t tokens_before, int seq) {
    return static_cast<int>(tokens_before * p.call.group_size / S::kRows) + seq;
  };
  int begin = 0, count = num_seqs;  // the sequences that it may be
  bool in_order = true;
  while (count > 32) {  // each lane looks at one of 32 that part the range
    const int step = ceil_div(count, 32), mine = lane * step;
    const int64_t tokens = p.call.q_indptr[min(begin + mine, num_seqs)];
    const bool before = mine < count && first_tile(tokens, begin + mine) <= place;
    const unsigned all_before = __ballot_sync(~0u, before);
    in_order &= (all_before & (all_before + 1)) == 0;
    const int skipped = max(__popc(all_before) - 1, 0) * step;
    begin += skipped;
    count = min(step, count - skipped);
  }
  bool asks_all = false;
#pragma unroll 1
  while (true) {
    const int mine = begin + min(lane, count - 1);
    const PrefillSequence seq(p, mine);
    const int number_of_first = first_tile(seq.rows.first, mine);
    const int num_rows = seq.rows.q_len * p.call.group_size;
    const bool is_mine = lane < count && static_cast<uint32_t>(place - number_of_first) <
                                             static_cast<uint32_t>(ceil_div(num_rows, S::kRows));
    const unsigned owner = __ballot_sync(~0u, is_mine);
    if (owner == 0) {
      // No sequence has it, unless the search has missed one.
      in_order &= __all_sync(~0u, seq.has_right_rows) != 0;
      if (!asks_all && (in_order || num_seqs <= 32)) break;
      begin = asks_all ? begin + 32 : 0;
      asks_all = true;
      if (begin >= num_seqs) break;
      count = min(32, num_seqs - begin);
      continue;
    }
    if (lane != __ffs(static_cast<int>(owner)) - 1) return;
    bool is_wrong = seq.pages.is_wrong();
    if (is_wrong) report(mine);
    item.first_token = seq.rows.first;
    item.tree = S::kGeneral ? tree_mask(p.call, mine, seq.rows.q_len, is_wrong) : RowTreeMask{};
    item.seq = mine;
    item.has_no_page[0] = item.has_no_page[1] = 0;
    item.q_len = seq.rows.q_len;
    item.kv_len = is_wrong ? 0 : seq.pages.kv_len;
    item.kv_head = kv_head;
    item.first_page = is_wrong ? -1 : seq.pages.first_page;
    item.first_key = reinterpret_cast<int64_t>(p.call.kv.pool) + p.call.kv.key_offset +
                     row_offset(p.call.kv, item.kv_head, 0);
    item.first_row = (place - number_of_first) * S::kRows;
    item.num_rows = min(num_rows - item.first_row, S::kRows);
    return set_tiles<S::kKeys>(p, item.num_rows, item);
  }
  if (lane == 0) item.num_rows = 0;
}

/// 8 elements from `from`, of which `count` exist, to shared memory, zeros after them. For
/// rows that are not aligned.
__device__ inline void copy_elements(void* to, const std::byte* from, int count) {
  uint32_t words[4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i < count)
      words[i / 2] |= uint32_t{reinterpret_cast<const uint16_t*>(from)[i]} << i % 2 * 16;
  }
  *static_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
}

/// Copies of a thread: of rows row, row + kThreads / 8, ... the vectors v, v + 8, .... 8 threads
/// side by side copy a line of 128 bytes.
template <class S>
struct Copier {
  static constexpr int kRowStep = S::kThreads / 8, kVectors = S::kDim / 64;
  static_assert(kRowStep % 8 == 0, "a thread's rows are exchanged alike");

  std::byte* to;  // of its first row, in the first tile
  int row, vector, head_dim;

  __device__ Copier(std::byte* shared, int head_dim)
      : row(threadIdx.x / 8), vector(threadIdx.x % 8), head_dim(head_dim) {
    to = shared + vector_offset<S::kDim>(row, vector);
  }

  /// Row `row + i * kRowStep` from `from`; zeros where in_range is false.
  __device__ void copy(int tile_at, int i, const std::byte* from, bool in_range,
                       bool is_aligned) const {
    std::byte* const row_to = to + tile_at + i * kRowStep * S::kRowBytes;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int left = head_dim - (vector + 8 * v) * 8;  // elements
      const std::byte* const vector_from = from + vector * 16 + v * 128;
      if (S::kGeneral && !is_aligned) {
        copy_elements(row_to + v * 128, vector_from, in_range ? left : 0);
      } else {
        copy_async_16(row_to + v * 128, vector_from, in_range && left > 0 ? 16 : 0);
      }
    }
  }

  /// The row becomes NaN.
  __device__ void put_nan(int tile_at, int i) const {
    std::byte* const row_to = to + tile_at + i * kRowStep * S::kRowBytes;
    for (int v = 0; v < kVectors; ++v) {
      *reinterpret_cast<uint4*>(row_to + v * 128) = {~0u, ~0u, ~0u, ~0u};
    }
  }

  __device__ void copy_queries(const PrefillParams& p, const PrefillItem item) const {
#pragma unroll
    for (int i = 0; i < S::kRows / kRowStep; ++i) {
      const bool in_range = i * kRowStep + row < item.num_rows;
      const Row at = row_of(p, item, in_range ? i * kRowStep + row : 0);
      const int64_t offset =
          (item.first_token + at.token) * p.call.q_token + at.head * p.call.q_head;
      copy(0, i, p.call.q + offset * 2, in_range, p.call.is_q_aligned);
    }
  }
};

/// Copies rows of a tile again, of which none has been copied yet, where a key of the item lies in
/// no page: such keys become NaN. `addresses`: of the thread's first row; `left`: from that one to
/// the end of the keys. No function of its own: a call in the loop over tiles would take the
/// registers of what all tiles share, 2 % of the loop's instructions.
template <class S, class C>
__device__ __forceinline__ void copy_checked(const C& copier, int tile_at, const int64_t* addresses,
                                             int64_t distance, int left, bool is_aligned) {
  wait_for_copies<0>();  // of zeros
#pragma unroll 1
  for (int i = 0; i < S::kKeys / C::kRowStep && i * C::kRowStep < left; ++i) {
    const int64_t from = addresses[i * C::kRowStep];
    if (from >= 0) {
      copier.copy(tile_at, i, reinterpret_cast<const std::byte*>(from + distance), true,
                  is_aligned);
    } else {
      copier.put_nan(tile_at, i);
    }
  }
  commit_copies();
}

/// Copies the tiles of keys and values of an item. A key in no page is NaN, and so are the rows
/// that see it. While a tile is worked on, each thread computes
/// the address of one key of the next tile and leaves it in shared memory. So a key costs one
/// division and one entry of the table, whatever the size of a page.
template <class S, class C>
struct KeyTiles {
  int64_t* addresses;  // [2][kKeys]; kNoAddress: of a key in no page
  int num_keys;        // of the item: after them come zeros

  __device__ KeyTiles(std::byte* shared, const PrefillItem& item)
      : addresses(reinterpret_cast<int64_t*>(shared + S::kAddressesAt)), num_keys(item.num_keys) {}

  /// Starts to copy the table's entry for this thread's key of a tile to where its address will be,
  /// so that no register waits for it. It belongs to the next group of copies.
  __device__ void look_up(const PrefillParams& p, const PrefillItem& item, int tile) const {
    const int key = tile * S::kKeys + static_cast<int>(threadIdx.x);
    if (threadIdx.x >= S::kKeys || key >= num_keys) return;
    int64_t* const to = &addresses[(tile & 1) * S::kKeys + threadIdx.x];
    const std::byte* const entry =
        p.call.kv.pages.address(item.first_page + page_slot(p.call.kv, key).page);
    if (p.call.kv.pages.is_int64()) {
      copy_async_8(to, entry, true);
    } else {
      copy_async_4(to, entry);
    }
  }
  /// The entry that look_up brought, until its address is made.
  [[nodiscard]] __device__ int64_t entry(const PrefillParams& p, int tile) const {
    const int64_t* const at = &addresses[(tile & 1) * S::kKeys + threadIdx.x];
    return p.call.kv.pages.is_int64() ? *at : *reinterpret_cast<const int32_t*>(at);
  }
  /// Makes the address of this thread's key of the entry that look_up brought.
  __device__ void leave_address(const PrefillParams& p, PrefillItem& item, int tile) const {
    const int key = tile * S::kKeys + static_cast<int>(threadIdx.x);
    if (threadIdx.x >= S::kKeys || key >= num_keys) return;
    int64_t* const at = &addresses[(tile & 1) * S::kKeys + threadIdx.x];
    const int64_t page = entry(p, tile);
    *at = item.first_key + page * p.call.kv.page_step +
          page_slot(p.call.kv, key).slot * p.call.kv.slot_step;
    if (!is_page(p.call.kv, page)) {
      *at = kNoAddress;
      if (atomicExch(&item.has_no_page[tile & 1], 1) == 0) item.no_page = page;
    }
  }
  /// Starts copying a tile, its keys, or with `distance` the values, as a group of copies. After
  /// the last tile come zeros.
  __device__ void fetch(const PrefillParams& p, const PrefillItem& item, const C& copier, int tile,
                        int tile_at, int64_t distance) const {
    // What follows from a wrong page is decided after the copies, and costs them a word and a
    // choice.
    const bool has_no_page = item.has_no_page[tile & 1] != 0;
    const int left = has_no_page ? 0 : num_keys - tile * S::kKeys - copier.row;
    const int64_t* const its_addresses = addresses + (tile & 1) * S::kKeys + copier.row;
    int64_t from[S::kKeys / C::kRowStep];
#pragma unroll
    for (int i = 0; i < S::kKeys / C::kRowStep; ++i) {
      from[i] = its_addresses[i * C::kRowStep] + distance;
    }
#pragma unroll
    for (int i = 0; i < S::kKeys / C::kRowStep; ++i) {
      copier.copy(tile_at, i, reinterpret_cast<const std::byte*>(from[i]), i * C::kRowStep < left,
                  p.call.kv.is_aligned);
    }
    commit_copies();
    if (has_no_page) {
      copy_checked<S>(copier, tile_at, its_addresses, distance,
                      num_keys - tile * S::kKeys - copier.row, p.call.kv.is_aligned);
    }
  }
};

}  // namespace heddle::cuda::attention::prefill
