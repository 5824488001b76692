#pragma once

// A tile of keys and the warp that has it: copies of keys and values, and the scores.
//
// A tile has 16 keys, of codes 32 (code_tile_cuda.h). In shared memory it is so many rows of kDim
// elements, that is kDim / 8 vectors of 16 bytes each. Vector v of row r lies where vector
// v ^ (r % 8) would, so that neither copies nor ldmatrix meet in a bank:
//
//            vector 0   1   2   3   4   5   6   7
//   row 0           0   1   2   3   4   5   6   7
//   row 1           1   0   3   2   5   4   7   6
//   row 2           2   3   0   1   6   7   4   5   ...
//
// A warp has a ring of kStages such tiles. Keys and values of its tiles go through it in order, so
// a part is filled while those before it are in use:
//
//   | keys of tile 0 | values of tile 0 | keys of tile 4 | values of tile 4 | ...     (warp 0)

#include <cstdint>
#include <type_traits>

#include "cuda/convert_cuda.h"
#include "cuda/memory_cuda.h"
#include "cuda/mma_cuda.h"

#include "ops/attention/decode/shape_cuda.h"

namespace heddle::cuda::attention::decode {

/// Hides from the compiler what it knows about v. What follows from v is then computed where it is
/// used, and not before a loop, where it would hold registers.
__device__ inline void forget(int& v) { asm volatile("" : "+r"(v)); }
__device__ inline void forget(uint32_t& v) { asm volatile("" : "+r"(v)); }
__device__ inline void forget(int64_t& v) { asm volatile("" : "+l"(v)); }

/// Offset of 16-byte vector `vector` of row `row` in a tile whose rows have row_bytes.
__device__ inline uint32_t vector_offset(int row, int vector, int row_bytes) {
  return static_cast<uint32_t>(row * row_bytes + ((vector ^ (row & 7)) << 4));
}
/// Offset of an element.
__device__ inline uint32_t element_offset(int row, int element, int row_bytes) {
  return vector_offset(row, element >> 3, row_bytes) + static_cast<uint32_t>(element & 7) * 2;
}

/// Offset of vector `vector` of the key or value of row `row` in a part of the ring. Where two rows
/// lie in a line of 128 bytes, it is the line's number that exchanges vectors.
template <class Shape>
__device__ uint32_t key_offset(int row, int vector) {
  if constexpr (Shape::kKeyBytes == 64) {
    return static_cast<uint32_t>(row * 64 + ((vector ^ (row >> 1 & 3)) << 4));
  } else {
    return vector_offset(row, vector, Shape::kKeyBytes);
  }
}

/// Copies the first num_valid elements of a vector of 16 bytes, which may begin anywhere, and zeros
/// after them.
template <class Element = uint16_t>
__device__ void copy_elements(std::byte* to, const std::byte* from, int num_valid) {
#pragma unroll 1
  for (int i = 0; i < 16 / int{sizeof(Element)}; ++i) {
    reinterpret_cast<Element*>(to)[i] =
        i < num_valid ? reinterpret_cast<const Element*>(from)[i] : Element{0};
  }
}

/// Copies a tile row by row: where it lies in several pages, where rows are not aligned, or where
/// some of its keys do not exist. `address`: of the key or value of row r, in lane r; negative: it
/// lies in no page, and becomes NaN.
template <class Shape>
__device__ __noinline__ void copy_rows(std::byte* to, uint64_t address, int position, int first_key,
                                       int kv_len, int head_dim, bool is_aligned) {
  constexpr int kVectors = Shape::kKeyBytes / 16, kRowsAtOnce = 32 / kVectors;
  constexpr int kElements = 16 / Shape::kElementBytes;
  using Element = std::conditional_t<Shape::kCodes, uint8_t, uint16_t>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int vector = lane % kVectors, there = head_dim - vector * kElements;
#pragma unroll 1
  for (int i = 0; i < Shape::kKeys / kRowsAtOnce; ++i) {
    const int r = i * kRowsAtOnce + lane / kVectors;
    const uint64_t row_address = __shfl_sync(~0u, address, r);
    const auto* row = reinterpret_cast<const std::byte*>(row_address) + vector * 16;
    const bool is_key = position + r >= first_key && position + r < kv_len;
    std::byte* place = to + key_offset<Shape>(r, vector);
    if (static_cast<int64_t>(row_address) < 0) {
      const uint32_t bits = is_key ? ~0u : 0u;
      *reinterpret_cast<uint4*>(place) = {bits, bits, bits, bits};
    } else if (is_aligned) {
      copy_async_16(place, row, is_key ? min(max(there, 0), kElements) * Shape::kElementBytes : 0);
    } else {
      copy_elements<Element>(place, row, is_key ? there : 0);
    }
  }
}

/// The query whose pages are read.
__device__ inline int last_query(const Run& run) {
  return run.cut->first_query + max(run.cut->num_queries - 1, 0);
}

/// Copies the tiles of a warp: w, w + kWarps, ... of each run. A batch of entries of the table is
/// read one batch ahead: those of 32 page tiles, 16 keys for each lane, where every page tile lies
/// within a page; else those of the rows of one tile.
template <class Shape, class Params>
class TileCursor {
 public:
  using Work = decltype(DecodeShared<Shape>::work);

  __device__ TileCursor(const Params& p, Work& share)
      : p_(p),
        lane_(static_cast<int>(threadIdx.x) % 32),
        walk_(p, share),
        next_(share.next[threadIdx.x / 32]) {}

  /// Reads the entries of the first two batches. Call before the first copy. is_stale: the table is
  /// no more than a guess.
  __device__ FirstPages start(bool is_stale) {
    walk_.start();
    ask_for_batch(first_position());
    const AskedPage first = asked();
    change_batch(is_stale);
    if (is_stale) prefetch_tiles();
    return {{first, asked()}};
  }

  /// These start to copy the keys, then the values, of the next tile to `to`, if there is one.
  /// Either commits one group of copies.
  __device__ void fetch_keys(std::byte* to) {
    if (batch_.position < batch_.end) {
      copy(to, 0);
      if constexpr (Shape::kCodes) copy_scales(to, 0);
    }
    commit_copies();
  }
  __device__ void fetch_values(std::byte* to) {
    if (batch_.position < batch_.end) {
      copy(to, p_.kv.value_distance);
      if constexpr (Shape::kCodes) copy_scales(to, p_.scales.value_distance);
      batch_.position += kStep;
      ++tile_;
      if (batch_.position >= batch_.end) change_batch(false);
    }
    commit_copies();
  }

 private:
  static constexpr int kKeys = Shape::kKeys, kRowBytes = Shape::kKeyBytes;
  static constexpr int kVectors = kRowBytes / 16, kRowsAtOnce = 32 / kVectors;
  static constexpr int kStep = Shape::kWarps * kKeys;
  /// Page tiles, of 16 keys, in a tile; and tiles of a batch, whose page tiles have a lane each,
  /// where every page tile lies within a page.
  static constexpr int kPageTiles = kKeys / kTileKeys, kBatchTiles = 32 / kPageTiles;
  /// 16 KB of keys and values a warp.
  static constexpr int kPrefetchedPageTiles = 512 / kRowBytes;

  [[nodiscard]] __device__ int first_position() const {
    return walk_.run().begin_key() + static_cast<int>(threadIdx.x) / 32 * kKeys;
  }
  /// From the first key of a batch of whole tiles to that of page tile i.
  [[nodiscard]] static __device__ int part_at(int i) {
    return i / kPageTiles * kStep + i % kPageTiles * kTileKeys;
  }
  /// Of each lane: where its key lies. That is the first key of the lane's page tile, or a row of
  /// the one tile of the batch. Keys that do not exist are replaced by the nearest that does.
  [[nodiscard]] __device__ PageSlot place_in(const TileBatch& batch) const {
    const int last = batch.kv_len - 1;
    return page_slot(p_.kv, p_.has_whole_tiles
                                ? min(batch.position + part_at(lane_), last) & -kTileKeys
                                : min(max(batch.position + lane_ % kKeys, batch.first_key), last));
  }
  [[nodiscard]] __device__ int64_t entry_of(const TileBatch& batch) const {
    return walk_.run().cut->first_page + place_in(batch).page;
  }
  [[nodiscard]] __device__ AskedPage asked() const {
    if (next_.position >= next_.end) return {};
    return {entry_of(next_), p_.kv.pages.value_of(page_)};
  }
  /// Reads the entries of the warp's next tiles, at `position` of the run or after it. The batch
  /// is empty where there are none.
  __device__ void ask_for_batch(int position) {
    while (walk_.has_run() && position >= walk_.run().end_key()) {
      walk_.next();
      if (walk_.has_run()) position = first_position();
    }
    TileBatch batch{};
    if (walk_.has_run()) {
      const Run run = walk_.run();
      batch.position = position;
      batch.end = min(run.end_key(), position + (p_.has_whole_tiles ? kBatchTiles * kStep : 1));
      batch.kv_len = run.cut->kv_len;
      batch.first_key = run.cut->first_key;
      page_ = load_given<load_changing_word_if>(p_.kv.pages, entry_of(batch));
    }
    __syncwarp();
    next_ = batch;
    __syncwarp();
  }
  __device__ void change_batch(bool is_stale) {
    batch_ = next_;
    if (batch_.position >= batch_.end) return;
    const int kv_head = rows_of(p_, walk_.run().unit).kv_head;
    const int64_t id = p_.kv.pages.value_of(page_);
    const int slot = place_in(batch_).slot;
    addresses_ = reinterpret_cast<uint64_t>(page_address(p_.kv, id)) +
                 static_cast<uint64_t>(row_offset(p_.kv, kv_head, slot));
    if constexpr (Shape::kCodes) scales_ = scale_address(p_.scales, id, kv_head, slot);
    if (!is_page(p_.kv, id)) {
      addresses_ = static_cast<uint64_t>(kNoAddress);
      if (!is_stale) report_page(p_.kv, "batch_decode", last_query(walk_.run()), id);
    }
    tile_ = 0;
    ask_for_batch(batch_.position + (p_.has_whole_tiles ? kBatchTiles * kStep : kStep));
  }

  /// Has keys and values of the warp's first tiles brought into the L2 cache, which may be done
  /// before the kernel in front has ended. Lanes 2r and 2r + 1 have the key and the value of row r.
  __device__ void prefetch_tiles() const {
    constexpr int kLine = 128, kLines = ceil_div(kRowBytes, kLine);
    if (!p_.has_whole_tiles) return;
#pragma unroll
    for (int part = 0; part < kPrefetchedPageTiles; ++part) {
      const uint64_t address = __shfl_sync(~0u, addresses_, part);
      if (batch_.position + part_at(part) >= batch_.end || static_cast<int64_t>(address) < 0) break;
      const auto* row = reinterpret_cast<const std::byte*>(address) + lane_ / 2 * p_.kv.slot_step +
                        lane_ % 2 * p_.kv.value_distance;
#pragma unroll
      for (int line = 0; line < kLines; ++line) {
        if (line * kLine < Shape::kElementBytes * p_.head_dim) prefetch(row + line * kLine);
      }
    }
  }

  /// Whether all keys of the batch's next tile exist and lie in pages. `parts`: addresses of its
  /// page tiles.
  template <class Address>
  [[nodiscard]] __device__ bool is_there(const Address (&parts)[kPageTiles]) const {
    bool is_there = batch_.position >= batch_.first_key && batch_.position + kKeys <= batch_.kv_len;
#pragma unroll
    for (const Address part : parts) is_there &= static_cast<int64_t>(part) >= 0;
    return is_there;
  }

  __device__ void copy(std::byte* to, int64_t distance) const {
    const int vector = lane_ % kVectors, first_row = lane_ / kVectors;
    if (!p_.has_whole_tiles) {
      return copy_rows<Shape>(to, addresses_ + static_cast<uint64_t>(distance), batch_.position,
                              batch_.first_key, batch_.kv_len, p_.head_dim, p_.kv.is_aligned);
    }
    uint64_t parts[kPageTiles];
#pragma unroll
    for (int i = 0; i < kPageTiles; ++i) {
      parts[i] =
          __shfl_sync(~0u, addresses_, tile_ * kPageTiles + i) + static_cast<uint64_t>(distance);
    }
    if (!is_there(parts)) {
      const uint64_t part = lane_ < kTileKeys ? parts[0] : parts[kPageTiles - 1];
      return copy_rows<Shape>(to, part + static_cast<uint64_t>(lane_ % kTileKeys * p_.kv.slot_step),
                              batch_.position, batch_.first_key, batch_.kv_len, p_.head_dim, true);
    }
    const bool in_range = vector * 16 < Shape::kElementBytes * p_.head_dim;
    int64_t step = kRowsAtOnce * p_.kv.slot_step;
    forget(step);
    const uint32_t place = shared_address(to) + key_offset<Shape>(first_row, vector);
#pragma unroll
    for (int part = 0; part < kPageTiles; ++part) {
      const auto* row = reinterpret_cast<const std::byte*>(parts[part]) +
                        first_row * p_.kv.slot_step + vector * 16;
#pragma unroll
      for (int i = part * kTileKeys / kRowsAtOnce; i < (part + 1) * kTileKeys / kRowsAtOnce; ++i) {
        // Row i * kRowsAtOnce + first_row: both numbers exchange its vectors (xor is associative).
        const uint32_t flip = (i * kRowsAtOnce & 7) << 4;
        copy_async_16_if((place ^ flip) + i * kRowsAtOnce * kRowBytes, row, in_range);
        row += step;
      }
    }
  }

  /// Copies the scales of a tile of codes, that of key i by lane i; 0 where there is no key.
  __device__ void copy_scales(std::byte* to, int64_t distance) const {
    if (!p_.scales.has_token_scales) return;
    auto from = reinterpret_cast<uint64_t>(scales_);
    bool has_page = static_cast<int64_t>(addresses_) >= 0;
    if (p_.has_whole_tiles) {
      const int part = tile_ * kPageTiles + lane_ / kTileKeys;
      from = __shfl_sync(~0u, from, part) +
             static_cast<uint64_t>(lane_ % kTileKeys * p_.scales.slot_step);
      has_page = __shfl_sync(~0u, static_cast<int>(has_page), part) != 0;
    }
    const int position = batch_.position + lane_;
    const bool is_key = has_page && position >= batch_.first_key && position < batch_.kv_len;
    copy_async_4(to + Shape::kScalesAt + 4 * lane_,
                 reinterpret_cast<const std::byte*>(from) + distance, is_key);
  }

  const Params& p_;
  int lane_;
  RunWalk<Work, 0, 1> walk_;
  TileBatch& next_;   // in the run of walk_
  LoadedIndex page_;  // of next_
  TileBatch batch_;
  uint64_t addresses_;         // of batch_; see copy_rows()
  const std::byte* scales_{};  // of codes, alike
  int tile_ = 0;               // of batch_
};

/// Room in shared memory for states that a warp merges.
struct MergePlace {
  float4* data;
  int size;
};

/// The ring of a warp, see above.
template <class Shape, class Params>
class StageRing {
 public:
  __device__ StageRing(const Params& p, DecodeShared<Shape>& s)
      : ahead_(p, s.work), stages_(s.ring[threadIdx.x / 32]) {}

  /// Finds the first tiles.
  __device__ FirstPages start(bool is_stale) {
    filled_ = used_ = 0;
    return ahead_.start(is_stale);
  }
  /// Starts copies to all parts but one. They belong to no more than two batches.
  __device__ void begin() {
    static_assert(Shape::kStages - 1 <= 2 * 2);
#pragma unroll 1
    for (int part = 0; part < Shape::kStages - 1; part += 2) {
      ahead_.fetch_keys(next(filled_));
      if (part + 1 < Shape::kStages - 1) ahead_.fetch_values(next(filled_));
    }
  }
  /// Waits for the keys of the next tile, or for the values after them, and starts the copy of
  /// what comes kStages - 1 parts later. All lanes have read the part before.
  template <bool kIsValues>
  [[nodiscard]] __device__ std::byte* take() {
    __syncwarp();
    constexpr bool kFetchesValues = kIsValues == (Shape::kStages % 2 == 1);
    kFetchesValues ? ahead_.fetch_values(next(filled_)) : ahead_.fetch_keys(next(filled_));
    wait_for_copies<Shape::kStages - 1>();
    __syncwarp();
    return next(used_);
  }
  /// The part that will be filled next. No lane uses it now.
  [[nodiscard]] __device__ std::byte* free_part() const { return stages_[filled_]; }
  /// The same as room for merging, or the whole ring where that is empty.
  [[nodiscard]] __device__ MergePlace free_place(bool is_empty) const {
    return {
        reinterpret_cast<float4*>(is_empty ? stages_[0] : free_part()),
        (is_empty ? Shape::kStages : 1) * Shape::kStageBytes / static_cast<int>(sizeof(float4))};
  }

 private:
  __device__ std::byte* next(int& part) {
    std::byte* at = stages_[part];
    part = part == Shape::kStages - 1 ? 0 : part + 1;
    return at;
  }

  TileCursor<Shape, Params> ahead_;
  std::byte (*stages_)[Shape::kStageBytes];
  int filled_ = 0, used_ = 0;
};

/// The rows of q as operands of the scores. Of up to two row tiles they are kept in registers for a
/// segment; four would leave too few, and are read again for each tile of keys.
template <int kDim, int kRowTiles>
struct RowFragments {
  static constexpr bool kIsHeld = kRowTiles <= 2;
  uint32_t at[kIsHeld ? kDim / 16 : 1][kRowTiles][2];  // [16 elements][row tile]
  uint32_t first_row;

  __device__ void load(uint32_t q, int lane) {
    // One load brings four vectors: of one row tile those of two steps, of two row tiles of one
    // step.
    constexpr int kSteps = kRowTiles == 1 ? 2 : 1;
    first_row = kRowTiles == 1
                    ? q + vector_offset(lane & 7, lane >> 3, 2 * kDim)
                    : q + vector_offset((lane & 7) + (lane >> 4) * 8, (lane >> 3) & 1, 2 * kDim);
    if constexpr (kIsHeld) {
#pragma unroll
      for (int k = 0; k < kDim / 16; k += kSteps) {
        load_two(k, 0, &at[k][0][0]);
      }
    }
  }
  /// Of step k, [row tile][2].
  const __device__ uint32_t (&step(int k))[kRowTiles][2] {
    if constexpr (kIsHeld) {
      return at[k];
    } else {
#pragma unroll
      for (int tile = 0; tile < kRowTiles; tile += 2) load_two(k, tile, &at[0][tile][0]);
      return at[0];
    }
  }

 private:
  __device__ void load_two(int k, int tile, uint32_t* to) const {
    uint32_t m[4];
    load_matrices(m, (first_row ^ static_cast<uint32_t>(k << 5)) +
                         static_cast<uint32_t>(tile * kDecodeRowTile * 2 * kDim));
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = m[i];
  }
};

/// s = the scores of the 16 keys of a tile. Even and odd steps of 16 elements have sums of their
/// own, so that products do not wait for each other.
template <class T, int kDim, int kRowTiles>
__device__ void score_tile(uint32_t keys, RowFragments<kDim, kRowTiles>& q, int lane,
                           float (&s)[kRowTiles][4]) {
  float part[2][kRowTiles][4] = {};
  const uint32_t key_row = keys + vector_offset(lane & 15, lane >> 4, 2 * kDim);
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
    uint32_t a[4];
    load_matrices(a, key_row ^ static_cast<uint32_t>(k << 5));
    const uint32_t(&b)[kRowTiles][2] = q.step(k);
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      mma_m16n8k16<T>(part[k % 2][tile], a, b[tile][0], b[tile][1]);
    }
  }
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[tile][i] = part[0][tile][i] + part[1][tile][i];
  }
}

}  // namespace heddle::cuda::attention::decode
