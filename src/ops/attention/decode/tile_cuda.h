#pragma once

// One warp and a tile of 16 keys: copies, rotation, scores, weights, weighted values. A row of a tile is kDim elements in shared memory,
// its vectors of 16 bytes exchanged by the row's number, so that neither copies nor ldmatrix meet in a bank.
//
// Products are keys x rows: S^T = K Q^T and O^T = V^T P^T, so that a product has 16 keys, or elements, and 8 rows of q. Lane (g, q) =
// (lane / 4, lane % 4) holds the scores of keys g, g + 8 and of rows 2q, 2q + 1, and of the sums elements g, g + 8 of every 16.

#include <cstdint>

#include "cuda/convert_cuda.h"
#include "cuda/memory_cuda.h"
#include "cuda/mma_cuda.h"

#include "ops/attention/decode/shape_cuda.h"

namespace heddle::cuda::attention::decode {

/// The compiler knows nothing about v from here on. So what follows from it is computed where it is used, not before a loop, where it
/// would hold registers.
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

/// The first num_there of 8 elements, for rows that begin anywhere; zeros behind them.
__device__ inline void copy_elements(std::byte* to, const std::byte* from, int num_there) {
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    reinterpret_cast<uint16_t*>(to)[i] =
        i < num_there ? reinterpret_cast<const uint16_t*>(from)[i] : uint16_t{0};
  }
}

/// Rows of a tile that are copied one by one: where a tile lies in several pages, rows are not aligned, or not all of its keys exist.
/// `address` is that of the key or value in lane r for row r.
template <int kDim>
__device__ __noinline__ void copy_rows(std::byte* to, uint64_t address, int position, int first_key,
                                       int kv_len, int head_dim, bool is_aligned) {
  constexpr int kVectors = kDim / 8, kRowsAtOnce = 32 / kVectors;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int vector = lane % kVectors, there = head_dim - vector * 8;
#pragma unroll 1
  for (int i = 0; i < kTileKeys / kRowsAtOnce; ++i) {
    const int r = i * kRowsAtOnce + lane / kVectors;
    const auto* row =
        reinterpret_cast<const std::byte*>(__shfl_sync(~0u, address, r)) + vector * 16;
    const bool is_key = position + r >= first_key && position + r < kv_len;
    std::byte* place = to + vector_offset(r, vector, 2 * kDim);
    if (is_aligned) {
      copy_async_16(place, row, is_key ? min(max(there, 0), 8) * 2 : 0);
    } else {
      copy_elements(place, row, is_key ? there : 0);
    }
  }
}

/// What a warp asks for next: the keys or the values of a tile. Warp w has the tiles w, w + kWarps, ... of a run. Entries of the table are
/// asked for long before they are needed: of 32 tiles at once where tiles lie within pages, else of the rows of one.
template <int kDim, int kWarps>
class TileCursor {
 public:
  __device__ TileCursor(const DecodeParams& p, Schedule<kWarps>& share)
      : p_(p),
        lane_(static_cast<int>(threadIdx.x) % 32),
        walk_(p, share),
        next_(share.next[threadIdx.x / 32]) {}

  /// Before the first copy.
  __device__ FirstPages start() {
    walk_.start();
    ask_for_batch(first_position());
    const AskedPage first = asked();
    change_batch();
    return {{first, asked()}};
  }

  /// Start copying the keys, then the values of the next tile, if there is one, to `to`; one group of copies either way.
  __device__ void fetch_keys(std::byte* to) {
    if (batch_.position < batch_.end) copy(to, 0);
    commit_copies();
  }
  __device__ void fetch_values(std::byte* to) {
    if (batch_.position < batch_.end) {
      copy(to, p_.kv.value_distance);
      batch_.position += kStep;
      ++tile_;
      if (batch_.position >= batch_.end) change_batch();
    }
    commit_copies();
  }

 private:
  static constexpr int kVectors = kDim / 8, kRowBytes = 2 * kDim, kRowsAtOnce = 32 / kVectors;
  static constexpr int kStep = kWarps * kTileKeys;

  [[nodiscard]] __device__ int first_position() const {
    return walk_.run().begin_key() + static_cast<int>(threadIdx.x) / 32 * kTileKeys;
  }
  /// The key at the beginning of a tile of the batch in each lane, or of a row of its tile: the nearest that there is.
  [[nodiscard]] __device__ PageSlot place_in(const TileBatch& batch) const {
    const int last = batch.kv_len - 1;
    return page_slot(p_.kv,
                     p_.has_whole_tiles
                         ? min(batch.position + lane_ * kStep, last) & -kTileKeys
                         : min(max(batch.position + lane_ % kTileKeys, batch.first_key), last));
  }
  [[nodiscard]] __device__ int64_t entry_of(const TileBatch& batch) const {
    return walk_.run().cut->first_page + place_in(batch).page;
  }
  [[nodiscard]] __device__ AskedPage asked() const {
    if (next_.position >= next_.end) return {};
    return {entry_of(next_), join_index(p_.kv.pages, page_)};
  }
  /// The next tiles that the warp has, from `position` of the run on; an empty batch behind the last.
  __device__ void ask_for_batch(int position) {
    while (walk_.has_run() && position >= walk_.run().end_key()) {
      walk_.next();
      if (walk_.has_run()) position = first_position();
    }
    TileBatch batch{};
    if (walk_.has_run()) {
      const Run run = walk_.run();
      batch.position = position;
      batch.end = min(run.end_key(), position + (p_.has_whole_tiles ? 32 * kStep : 1));
      batch.kv_len = run.cut->kv_len;
      batch.first_key = run.cut->first_key;
      page_ = ask_index<load_changing_word_if>(p_.kv.pages, entry_of(batch));
    }
    __syncwarp();
    next_ = batch;
    __syncwarp();
  }
  __device__ void change_batch() {
    batch_ = next_;
    if (batch_.position >= batch_.end) return;
    const int kv_head = rows_of(p_, walk_.run().unit).kv_head;
    addresses_ = reinterpret_cast<uint64_t>(page_address(p_.kv, page_)) +
                 static_cast<uint64_t>(row_offset(p_.kv, kv_head, place_in(batch_).slot));
    tile_ = 0;
    ask_for_batch(batch_.position + (p_.has_whole_tiles ? 32 * kStep : kStep));
  }

  __device__ void copy(std::byte* to, int64_t distance) const {
    const int vector = lane_ % kVectors, first_row = lane_ / kVectors;
    if (!p_.has_whole_tiles) {
      return copy_rows<kDim>(to, addresses_ + static_cast<uint64_t>(distance), batch_.position,
                             batch_.first_key, batch_.kv_len, p_.head_dim, p_.kv.is_aligned);
    }
    const uint64_t tile = __shfl_sync(~0u, addresses_, tile_) + static_cast<uint64_t>(distance);
    if (batch_.position < batch_.first_key || batch_.position + kTileKeys > batch_.kv_len) {
      return copy_rows<kDim>(to, tile + static_cast<uint64_t>(lane_ % kTileKeys * p_.kv.slot_step),
                             batch_.position, batch_.first_key, batch_.kv_len, p_.head_dim, true);
    }
    const bool in_range = vector * 8 < p_.head_dim;
    int64_t step = kRowsAtOnce * p_.kv.slot_step;
    forget(step);
    const auto* row =
        reinterpret_cast<const std::byte*>(tile) + first_row * p_.kv.slot_step + vector * 16;
    const uint32_t place = shared_address(to) + vector_offset(first_row, vector, kRowBytes);
#pragma unroll
    for (int i = 0; i < kTileKeys / kRowsAtOnce; ++i) {
      // Row i * kRowsAtOnce + first_row: its vectors are exchanged by both numbers, one after the other.
      const uint32_t flip = (i * kRowsAtOnce & 7) << 4;
      copy_async_16_if((place ^ flip) + i * kRowsAtOnce * kRowBytes, row, in_range);
      row += step;
    }
  }

  const DecodeParams& p_;
  int lane_;
  RunWalk<kWarps, 0, 1> walk_;
  TileBatch& next_;    // in the run of walk_
  IndexWords page_{};  // of next_
  TileBatch batch_;
  uint64_t addresses_;  // of batch_
  int tile_ = 0;        // of batch_
};

/// Shared memory of a warp.
struct MergePlace {
  float4* data;
  int size;
};

/// The ring of a warp: keys and values of one tile after the other, in the order in which they are asked for.
template <class Shape>
class PartRing {
 public:
  __device__ PartRing(const DecodeParams& p, DecodeShared<Shape>& s)
      : ahead_(p, s.work), parts_(s.ring[threadIdx.x / 32]) {}

  /// Finds the first parts, by a table that the kernel in front may still write.
  __device__ FirstPages start() {
    filled_ = used_ = 0;
    return ahead_.start();
  }
  /// Asks for all parts but one: of no more than two batches.
  __device__ void begin() {
    static_assert(Shape::kParts - 1 <= 2 * 2);
#pragma unroll 1
    for (int part = 0; part < Shape::kParts - 1; part += 2) {
      ahead_.fetch_keys(next(filled_));
      if (part + 1 < Shape::kParts - 1) ahead_.fetch_values(next(filled_));
    }
  }
  /// The keys of the next tile, or the values behind them: asks for the part that is kParts - 1 behind it. All lanes have read the part
  /// before.
  template <bool kIsValues>
  [[nodiscard]] __device__ std::byte* take() {
    __syncwarp();
    constexpr bool kFetchesValues = kIsValues == (Shape::kParts % 2 == 1);
    kFetchesValues ? ahead_.fetch_values(next(filled_)) : ahead_.fetch_keys(next(filled_));
    wait_for_copies<Shape::kParts - 1>();
    __syncwarp();
    return next(used_);
  }
  /// What is filled next; it is not in use.
  [[nodiscard]] __device__ std::byte* free_part() const { return parts_[filled_]; }
  /// That, or the whole ring where it is empty.
  [[nodiscard]] __device__ MergePlace free_place(bool is_empty) const {
    return {reinterpret_cast<float4*>(is_empty ? parts_[0] : free_part()),
            (is_empty ? Shape::kParts : 1) * Shape::kPartBytes / static_cast<int>(sizeof(float4))};
  }

 private:
  __device__ std::byte* next(int& part) {
    std::byte* at = parts_[part];
    part = part == Shape::kParts - 1 ? 0 : part + 1;
    return at;
  }

  TileCursor<Shape::kDim, Shape::kWarps> ahead_;
  std::byte (*parts_)[Shape::kPartBytes];
  int filled_ = 0, used_ = 0;
};

/// The rows of q of a run: heads of one token.
struct QueryRows {
  int64_t token, first_head;
  int count;

  __device__ QueryRows(const DecodeParams& p, const Run& run, int most) : token(run.seq) {
    const UnitRows rows = rows_of(p, run.unit);
    first_head = int64_t{rows.kv_head} * p.group_size + rows.first;
    count = min(p.group_size - rows.first, most);
  }
};

/// The place of vector number `place` of the rows in shared memory, where it comes from, and how many of its elements there are: none
/// behind the last row or the end of a row.
struct RowVector {
  std::byte* to;
  const std::byte* from;
  int there;
};
template <class Shape>
__device__ RowVector row_vector(const DecodeParams& p, const QueryRows& rows, int place,
                                std::byte* q) {
  constexpr int kVectors = Shape::kDim / 8;
  const int row = place / kVectors, vector = place % kVectors;
  return {q + vector_offset(row, vector, Shape::kRowBytes),
          p.q + (rows.token * p.q_token + (rows.first_head + row) * p.q_head + vector * 8) * 2,
          row < rows.count ? p.head_dim - vector * 8 : 0};
}

/// Copies rows of q to shared memory: where they begin at multiples of 16 bytes, the copies are on their way then, else they have ended.
template <class Shape>
__device__ void fetch_rows(const DecodeParams& p, const Run& run, std::byte* q) {
  constexpr int kPlaces = Shape::kRows * Shape::kDim / 8;
  const QueryRows rows(p, run, Shape::kRows);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kPlaces; i += Shape::kThreads) {
    const RowVector v = row_vector<Shape>(p, rows, i, q);
    if (p.is_q_aligned) {
      copy_async_16(v.to, v.from, v.there > 0 ? 16 : 0);
    } else {
      copy_elements(v.to, v.from, v.there);
    }
  }
}

/// Scores of the keys of the tile at `position` that are not in [first_key, kv_len) become -inf.
template <int kRowTiles>
__device__ void hide_keys(int position, int first_key, int kv_len, float (&s)[kRowTiles][4]) {
  if (position >= first_key && position + kTileKeys <= kv_len) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int key = position + lane / 4 + i * 8;
    if (key >= first_key && key < kv_len) continue;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) s[tile][2 * i] = s[tile][2 * i + 1] = -INFINITY;
  }
}

/// The rows of q as the tensor cores take them, for the warp's tiles of a segment: of each 16 elements, of each row tile.
template <int kDim, int kRowTiles>
struct RowFragments {
  uint32_t at[kDim / 16][kRowTiles][2];

  __device__ void load(uint32_t q, int lane) {
    // Of one row tile: the four vectors of two steps. Of two: both vectors of one step, of either tile.
    constexpr int kSteps = kRowTiles == 1 ? 2 : 1;
    const uint32_t row =
        kRowTiles == 1 ? q + vector_offset(lane & 7, lane >> 3, 2 * kDim)
                       : q + vector_offset((lane & 7) + (lane >> 4) * 8, (lane >> 3) & 1, 2 * kDim);
#pragma unroll
    for (int k = 0; k < kDim / 16; k += kSteps) {
      uint32_t m[4];
      load_matrices(m, row ^ static_cast<uint32_t>(k << 5));
#pragma unroll
      for (int i = 0; i < 4; ++i) (&at[k][0][0])[i] = m[i];
    }
  }
};

/// s = the products of 16 keys in shared memory and the rows of q; the sum of the even and of the odd products of 16 elements.
template <class T, int kDim, int kRowTiles>
__device__ void score_tile(uint32_t keys, const RowFragments<kDim, kRowTiles>& q, int lane,
                           float (&s)[kRowTiles][4]) {
  float part[2][kRowTiles][4] = {};
  const uint32_t key_row = keys + vector_offset(lane & 15, lane >> 4, 2 * kDim);
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
    uint32_t a[4];
    load_matrices(a, key_row ^ static_cast<uint32_t>(k << 5));
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      mma_m16n8k16<T>(part[k % 2][tile], a, q.at[k][tile][0], q.at[k][tile][1]);
    }
  }
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[tile][i] = part[0][tile][i] + part[1][tile][i];
  }
}

}  // namespace heddle::cuda::attention::decode
