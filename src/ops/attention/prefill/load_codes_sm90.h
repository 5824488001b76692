#pragma once

// The role load of the prefill kernel for compute capability 9.0, for a cache of f8e4m3: that of
// load_sm90.h, but codes become T on their way. A thread copies its vectors of codes to places of
// its own, and makes elements of T of them when they have arrived and their tile is free. So codes
// have the time of a tile to arrive:
//
//   at tile t    makes keys of t - 1, fetches keys of t, makes values of t - 2, fetches those of
//                t - 1
//
// An element is scale * code, rounded to T: what a cache of T would hold, but for the rounding of
// codes.

#include "cuda/convert_cuda.h"

#include "ops/attention/prefill/load_sm90.h"

namespace heddle::cuda::attention::prefill {

/// Copies of a thread: of rows row, row + 16, ... the vector lane % 8 of 16 codes. Lanes have the
/// addresses of rows, and their scales, as in RowCopier.
template <class S>
struct CodeRowCopier {
  static constexpr int kRowStep = 16, kRows = S::kKeys / kRowStep, kVectors = S::kDim / 16;
  static_assert(S::kCodeBytes == kRows * 128 * 16);

  int lane, row, vector;
  bool has_vector;  // heads have fewer than lanes

  __device__ explicit CodeRowCopier(int head_dim)
      : lane(static_cast<int>(threadIdx.x) % 32),
        row(static_cast<int>(threadIdx.x) / 8),
        vector(lane % 8),
        has_vector(vector * 16 < head_dim) {}

  /// Starts to copy the rows whose lanes have addresses, zeros for 0, as a group of copies.
  __device__ void fetch(std::byte* codes, int64_t own_address) const {
    const uint32_t to = shared_address(codes) + threadIdx.x * 16;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int64_t from = __shfl_sync(~0u, own_address, i * 4 + lane / 8);
      copy_async_16_if(to + i * 128 * 16, reinterpret_cast<const std::byte*>(from) + vector * 16,
                       from != 0 && has_vector);
    }
    commit_copies();
  }
  /// Makes the tile of the codes that have arrived.
  template <class T>
  __device__ void put(const std::byte* codes, float own_scale, std::byte* tile) const {
    // Lanes of a line write its even vectors in two blocks of columns: those of the second write
    // the odd ones first, so that they do not meet in a bank.
    const bool is_odd_first = vector >= 4;
#pragma unroll 2
    for (int i = 0; i < kRows; ++i) {
      const float scale = __shfl_sync(~0u, own_scale, i * 4 + lane / 8);
      if (vector >= kVectors) continue;
      const uint4 four = *reinterpret_cast<const uint4*>(codes + (i * 128 + threadIdx.x) * 16);
      uint32_t two[8];
      const uint32_t words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const auto of_two = static_cast<uint16_t>(words[e / 2] >> e % 2 * 16);
        const float2 x = widen_two<__half>(widen_two_e4m3(of_two));
        two[e] = narrow_two<T>({x.x * scale, x.y * scale});
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const bool is_high = is_odd_first != (half == 1);
        const uint32_t offset =
            swizzled_offset<S>(row + i * kRowStep, 2 * vector + static_cast<int>(is_high));
        *reinterpret_cast<uint4*>(tile + offset) = {
            is_high ? two[4] : two[0], is_high ? two[5] : two[1], is_high ? two[6] : two[2],
            is_high ? two[7] : two[3]};
      }
    }
  }
};

/// The keys and values of an item: where those of this lane's row lie, and their scales, of the
/// tile whose codes are fetched and of those before it.
template <class T, class S>
class CodeTilesSm90 {
 public:
  __device__ CodeTilesSm90(const PrefillParams& p, const KvScaleParams& scales,
                           PrefillShared<S>& shared)
      : p_(p),
        scales_(scales),
        copier_(p.call.head_dim),
        own_row_(copier_.lane / 4 * 16 + static_cast<int>(threadIdx.x) / 32 * 4 + copier_.lane % 4),
        keys_(shared.codes[0]),
        values_(shared.codes[1]) {}

  __device__ void look_up(const PrefillItem& item, int tile) {
    page_.look_up(p_, item, tile * S::kKeys + own_row_);
  }
  /// The tile that was looked up is that of the keys to come, the one before that of the values.
  __device__ void next(PrefillItem& item, int tile) {
    value_ = key_;
    old_value_scale_ = value_scale_;
    value_scale_ = next_value_scale_;
    key_ = 0;
    key_scale_ = next_value_scale_ = 0.0f;
    const int key = tile * S::kKeys + own_row_;
    if (!page_.is_there(p_, item, key)) return;
    const int slot = page_slot(p_.call.kv, key).slot;
    key_ = item.first_key + page_.entry * p_.call.kv.page_step + slot * p_.call.kv.slot_step;
    key_scale_ = scales_.k_scale;
    next_value_scale_ = scales_.v_scale;
    if (!scales_.has_token_scales) return;
    const std::byte* const scale = scale_address(scales_, page_.entry, item.kv_head, slot);
    key_scale_ = *reinterpret_cast<const float*>(scale);
    next_value_scale_ = *reinterpret_cast<const float*>(scale + scales_.value_distance);
  }
  /// After the last tile: its values are the next to be put.
  __device__ void end() { old_value_scale_ = value_scale_; }
  __device__ void fetch_keys() const { copier_.fetch(keys_, key_); }
  __device__ void fetch_values() const {
    copier_.fetch(values_, value_ == 0 ? 0 : value_ + p_.call.kv.value_distance);
  }
  /// The keys that were fetched last, before next().
  template <class Ring>
  __device__ void put_keys(Ring& ring, const RingPlace& at, std::byte* to) const {
    put(ring, at, keys_, key_scale_, to);
  }
  /// The values that were fetched last, after next() or end().
  template <class Ring>
  __device__ void put_values(Ring& ring, const RingPlace& at, std::byte* to) const {
    put(ring, at, values_, old_value_scale_, to);
  }

 private:
  template <class Ring>
  __device__ void put(Ring& ring, const RingPlace& at, const std::byte* codes, float scale,
                      std::byte* to) const {
    wait_for_copies<1>();  // of keys and values the one that was fetched later may be on its way
    ring.wait_empty(at);
    copier_.template put<T>(codes, scale, to);
    show_to_copy_engine();
    ring.full[at.stage].arrive();
  }

  const PrefillParams& p_;
  const KvScaleParams& scales_;
  CodeRowCopier<S> copier_;
  int own_row_;
  std::byte *keys_, *values_;
  KeyPage page_;
  int64_t key_ = 0, value_ = 0;
  float key_scale_ = 0.0f;
  // Of values: of the tile whose keys are fetched, of the one before, and of that before it.
  float next_value_scale_ = 0.0f, value_scale_ = 0.0f, old_value_scale_ = 0.0f;
};

template <class T, class S>
__device__ void load_codes(const CodePrefillSm90Params& params, PrefillShared<S>& shared) {
  const bool finds = threadIdx.x < 32;
  CodeTilesSm90<T, S> tiles(params.common, params.scales, shared);
  ItemNumbers numbers;
  RingPlace items = RingPlace::of_multiply(), found = RingPlace::of_load();
  RingPlace keys = RingPlace::of_load(), values = RingPlace::of_load();
  uint32_t queries_parity = 1;
  const auto find = [&] {
    if (finds) find_next(params, numbers, shared, found);
    found.advance(S::kItems);
  };
  const auto put_values = [&] {
    tiles.put_values(shared.value_ring, values, shared.values[values.stage]);
    values.advance(S::kStages);
  };
  if (!finds) check_starts_sm90(params.common);
  find();
  while (true) {
    shared.item_ring.wait_full(items);
    PrefillItem& item = shared.items[items.stage];
    if (item.num_rows < 0) break;
    const int begin = item.begin, end = item.end;
    if (begin < end) tiles.look_up(item, begin);
#pragma unroll 1
    for (int tile = begin; tile <= end && begin < end; ++tile) {
      if (tile > begin) {
        tiles.put_keys(shared.key_ring, keys, shared.keys[keys.stage]);
        keys.advance(S::kStages);
      }
      tiles.next(item, tile);
      if (tile < end) {
        tiles.look_up(item, tile + 1);
        tiles.fetch_keys();
      } else {
        commit_copies();
      }
      if (tile > begin + 1) put_values();
      if (tile > begin) {
        tiles.fetch_values();
      } else {
        commit_copies();
        shared.queries_empty.wait(queries_parity);
        copy_queries<S>(params.common, item, shared.queries);
        shared.queries_full.arrive_after_copies();
        queries_parity ^= 1;
      }
      if (tile == begin + 1) find();  // while these tiles are on their way
    }
    if (begin < end) {
      commit_copies();
      tiles.end();
      put_values();
    } else {
      find();
    }
    if (!finds) shared.item_ring.empty[items.stage].arrive();
    items.advance(S::kItems);
  }
  if (threadIdx.x == 0) ItemNumbers::end(params);
}

}  // namespace heddle::cuda::attention::prefill
