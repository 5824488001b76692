#pragma once

// The role attend of the prefill kernel for compute capability 9.0: a warpgroup has 64 rows.
//
//   tile t      scores   ==========                      products of the tensor cores
//               weights            ----------            exponents
//   tile t - 1  values        ==========
//
// The scores of a tile and the values of the one before are multiplied together; while the two
// warpgroups take turns at that, the other one makes weights.
//
// Lane (g, q) = (lane / 4, lane % 4) of warp w has rows 16 w + g and 16 w + g + 8 of the
// warpgroup, and of 8 keys or elements those of 2 q and 2 q + 1.

#include <cstdint>
#include <type_traits>

#include "cuda/convert_cuda.h"
#include "cuda/exp_cuda.h"
#include "cuda/sm90/wgmma_cuda.h"

#include "ops/attention/device/finite_values_cuda.h"
#include "ops/attention/prefill/prefill_sm90_params.h"
#include "ops/attention/prefill/shared_sm90.h"

namespace heddle::cuda::attention::prefill {

/// Named barriers; 0 is that of __syncthreads.
enum NamedBarrier : int { kTurn = 1, kGroup = 3, kBoth = 5 };  // kTurn, kGroup: for each warpgroup

template <int kThreads>
__device__ void wait_named(int barrier) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}
template <int kThreads>
__device__ void arrive_named(int barrier) {
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}

/// The turns of two warpgroups at starting products.
struct ProductTurns {
  int mine, other;
  __device__ explicit ProductTurns(int group) : mine(kTurn + group), other(kTurn + 1 - group) {
    if (group == 1) arrive_named<256>(other);
  }
  __device__ void wait() const { wait_named<256>(mine); }
  __device__ void pass() const { arrive_named<256>(other); }
  /// Takes back the last turn.
  __device__ void end(int group) const {
    if (group == 0) wait_named<256>(mine);
  }
};

/// The online softmax of a thread's two rows.
template <class S>
struct RowState {
  float o[S::kDim / 2];
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};  // of this lane's weights, in f32, before they are rounded

  /// Takes the maximum of a tile in, and makes its weights in place of the scores. Gives the
  /// factors of what was summed before.
  __device__ void weigh(float (&s)[S::kKeys / 2], float scale_log2, float (&shrink)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = fmaxf(s[2 * h], s[2 * h + 1]), top2 = fmaxf(s[4 + 2 * h], s[5 + 2 * h]);
#pragma unroll
      for (int n = 2; n < S::kKeys / 8; n += 2) {
        top = fmaxf(top, fmaxf(s[4 * n + 2 * h], s[4 * n + 2 * h + 1]));
        top2 = fmaxf(top2, fmaxf(s[4 * n + 4 + 2 * h], s[4 * n + 5 + 2 * h]));
      }
      top = fmaxf(top, top2);
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(fmaxf(top, __shfl_xor_sync(~0u, top, 2)), max[h]);
      shrink[h] = top == max[h] ? 1.0f : exp2_fast((max[h] - top) * scale_log2);
      max[h] = top;
      const float shift = top == -INFINITY ? 0.0f : top * scale_log2;
      float sums[2] = {};
#pragma unroll
      for (int n = 0; n < S::kKeys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[4 * n + 2 * h + e];
          x = exp2_fast(__fmaf_rn(x, scale_log2, -shift));
          sums[e] += x;
        }
      }
      sum[h] = __fmaf_rn(sum[h], shrink[h], sums[0] + sums[1]);
    }
  }
  /// Where no row of the warp has a new maximum the factors are all 1.
  __device__ void shrink_values(const float (&shrink)[2]) {
    if (!__any_sync(~0u, shrink[0] != 1.0f || shrink[1] != 1.0f)) return;
#pragma unroll
    for (int d = 0; d < S::kDim / 8; ++d) {
      o[4 * d] *= shrink[0], o[4 * d + 1] *= shrink[0];
      o[4 * d + 2] *= shrink[1], o[4 * d + 3] *= shrink[1];
    }
  }
};

/// Weights as rows of the second product, rounded to T.
template <class T, int kNum>
__device__ void narrow_weights(const float (&s)[kNum], uint32_t (&rows)[kNum / 2]) {
#pragma unroll
  for (int i = 0; i < kNum / 2; ++i) rows[i] = narrow_two<T>({s[2 * i], s[2 * i + 1]});
}

template <class T, class S>
__device__ void start_scores(const std::byte* queries, const std::byte* keys,
                             float (&s)[S::kKeys / 2]) {
  begin_products();
  const uint64_t q = matrix_descriptor(queries), k = matrix_descriptor(keys);
#pragma unroll
  for (int i = 0; i < S::kDim / 16; ++i) {
    const uint32_t at = i / 4 * S::kBlockBytes + i % 4 * 32;
    wgmma<T>(s, further(q, at), further(k, at), i > 0);
  }
  commit_products();
}

template <class T, class S>
__device__ void start_values(const std::byte* values, const uint32_t (&weights)[S::kKeys / 4],
                             float (&o)[S::kDim / 2]) {
  begin_products();
  const uint64_t v = column_descriptor(values, S::kBlockBytes);
#pragma unroll
  for (int i = 0; i < S::kKeys / 16; ++i) {
    wgmma_rows<T>(o, weights + 4 * i, further(v, i * 16 * kSwizzledRowBytes));
  }
  commit_products();
}

/// The first of this lane's columns. Read here, where few tiles come by: else what follows from it
/// would be worked out for all tiles.
__device__ inline int own_column() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread % 4 * 2;
}

/// What a thread's two rows see.
struct SeenKeys {
  int begin[2], end[2];

  template <class S>
  __device__ void mask(int first_key, float (&s)[S::kKeys / 2]) const {
    const int mine = first_key + own_column();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int from = begin[h] - mine, to = end[h] - mine;
#pragma unroll
      for (int n = 0; n < S::kKeys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int key = 8 * n + e;
          if (key < from || key >= to) s[4 * n + 2 * h + e] = -INFINITY;
        }
      }
    }
  }
};

/// Rows that see a key that lies in no page become NaN.
template <class S>
__device__ void spoil_rows(const PrefillParams& p, const PrefillItem& item, const SeenKeys& seen,
                           float (&sum)[2]) {
#pragma unroll 1
  for (int key = item.begin * S::kKeys + own_column() / 2; key < item.num_keys; key += 4) {
    const int64_t page = p.call.kv.pages[item.first_page + page_slot(p.call.kv, key).page];
    if (is_page(p.call.kv, page)) continue;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (key >= seen.begin[h] && key < seen.end[h]) sum[h] = NAN;
    }
  }
}

/// Keys of a tile that not all rows of the item see: those before `begin` and those from `end` to
/// `num_keys`, after which there are zeros.
struct PartlySeen {
  int begin, end, num_keys;

  __device__ PartlySeen(const PrefillItem& item, int tile_keys, int tile) {
    const int first = tile * tile_keys;
    num_keys = min(item.num_keys - first, tile_keys);
    begin = min(max(item.all_begin - first, 0), num_keys);
    end = max(min(item.all_end - first, num_keys), begin);
  }
  [[nodiscard]] __device__ int count() const { return begin + num_keys - end; }
  [[nodiscard]] __device__ int key(int i) const { return i < begin ? i : i - begin + end; }
};

/// Whether values of such keys are infinite or NaN: a weight of 0 times one of these would be NaN
/// in rows that do not see it. All threads of both warpgroups get the same answer, each group by
/// itself.
template <class T, class S>
__device__ bool any_not_finite(const PartlySeen& partly, const std::byte* values, int group) {
  constexpr int kVectors = S::kDim / 8;
  constexpr uint32_t kOne = kExponents<T> & ~(kExponents<T> << 1);
  uint32_t found = 0;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 128; i < partly.count() * kVectors; i += 128) {
    const uint4 four = *reinterpret_cast<const uint4*>(
        values + swizzled_offset<S>(partly.key(i / kVectors), i % kVectors));
    for (const uint32_t two : {four.x, four.y, four.z, four.w}) found |= (two & kExponents<T>)+kOne;
  }
  uint32_t any;
  asm volatile(
      "{.reg .pred mine, all; setp.ne.u32 mine, %1, 0; barrier.cta.red.or.pred all, %2, 128, mine; "
      "selp.u32 %0, 1, 0, all;}"
      : "=r"(any)
      : "r"(found & 0x80008000), "r"(kGroup + group)
      : "memory");
  return any != 0;
}

/// The values above become 0, once all threads of both warpgroups are here.
template <class T, class S>
__device__ __forceinline__ void clear_not_finite(const PartlySeen& partly, std::byte* values) {
  wait_named<256>(kBoth);
  constexpr int kWords = S::kDim / 2;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) - 128; i < partly.count() * kWords; i += 256) {
    const int word = i % kWords;
    auto& two = *reinterpret_cast<uint32_t*>(
        values + swizzled_offset<S>(partly.key(i / kWords), word / 4) + word % 4 * 4);
    two &= ~not_finite<T>(two);
  }
  show_to_copy_engine();
  wait_named<256>(kBoth);
}

/// Adds weight * value to the rows that see them for all values above, which become 0 for the
/// products. So a sum is NaN or infinite where it would be one with whole tiles, and other rows
/// have the bits that they have without such values. By both warpgroups.
template <class T, class S>
__device__ __forceinline__ void take_out_not_finite(const PartlySeen& partly, const SeenKeys& seen,
                                                    int first_key, std::byte* values,
                                                    const uint32_t (&weights)[S::kKeys / 4],
                                                    RowState<S>& state) {
  // Indexed at run time, so not in registers.
  uint32_t its_weights[S::kKeys / 4];
  float o[S::kDim / 2];
#pragma unroll
  for (int i = 0; i < S::kKeys / 4; ++i) its_weights[i] = weights[i];
#pragma unroll
  for (int i = 0; i < S::kDim / 2; ++i) o[i] = state.o[i];
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int i = 0; i < partly.count(); ++i) {
    const int key = partly.key(i);
    float weight[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t two = __shfl_sync(~0u, its_weights[key / 16 * 4 + key / 8 % 2 * 2 + h],
                                       lane / 4 * 4 + key % 8 / 2);
      const float2 both = widen_two<T>(two);
      weight[h] = key % 2 == 0 ? both.x : both.y;
    }
    const int position = first_key + key;
#pragma unroll 1
    for (int d = 0; d < S::kDim / 8; ++d) {
      const uint32_t two =
          *reinterpret_cast<const uint32_t*>(values + swizzled_offset<S>(key, d) + lane % 4 * 4);
      if (not_finite<T>(two) == 0) continue;
      const float2 value = widen_two<T>(two);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (position < seen.begin[h] || position >= seen.end[h]) continue;
        if (!isfinite(value.x)) o[4 * d + 2 * h] += weight[h] * value.x;
        if (!isfinite(value.y)) o[4 * d + 2 * h + 1] += weight[h] * value.y;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < S::kDim / 2; ++i) state.o[i] = o[i];
  clear_not_finite<T, S>(partly, values);
}

/// Exchanges words of the four lanes of a quad: lane q has word i of lane j as word j where it had
/// i = q.
__device__ inline void transpose_in_quad(uint32_t (&w)[4]) {
  const bool odd = threadIdx.x % 2 != 0, high = threadIdx.x % 4 >= 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t got = __shfl_xor_sync(~0u, odd ? w[i] : w[i + 1], 1);
    (odd ? w[i] : w[i + 1]) = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t got = __shfl_xor_sync(~0u, high ? w[i] : w[i + 2], 2);
    (high ? w[i] : w[i + 2]) = got;
  }
}

template <class T, class S>
__device__ void write_rows(const PrefillParams& p, const PrefillItem& item, int first_row,
                           const RowState<S>& state) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first_row + 8 * h + lane / 4;
    float sum = state.sum[h];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (item.first_page < 0) sum = NAN;
    const float factor = sum == 0.0f ? 0.0f : __fdividef(1.0f, sum);
    const bool is_there = row < item.num_rows;
    const Row at = row_of(p, item, is_there ? row : 0);
    auto* const to = reinterpret_cast<T*>(p.call.o) +
                     (item.first_token + at.token) * p.call.o_token + at.head * p.call.o_head;
#pragma unroll
    for (int i = 0; i < S::kDim / 32; ++i) {
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* const o = &state.o[4 * (4 * i + j) + 2 * h];
        words[j] = narrow_two<T>({o[0] * factor, o[1] * factor});
      }
      transpose_in_quad(words);
      const int element = 32 * i + lane % 4 * 8;
      if (is_there && element < p.call.head_dim) {
        *reinterpret_cast<uint4*>(to + element) = {words[0], words[1], words[2], words[3]};
      }
    }
    if (p.call.lse == nullptr || lane % 4 != 0 || !is_there) continue;
    p.call.lse[(item.first_token + at.token) * p.call.lse_token + at.head * p.call.lse_head] =
        sum == 0.0f ? -INFINITY : state.max[h] * p.scale + __logf(sum);
  }
}

/// An item all of whose rows are the other warpgroup's, once its queries are there: this one frees
/// the tiles as they come, and lets the other have its turns.
template <class T, class S>
__device__ __forceinline__ void pass_item(PrefillShared<S>& shared, const PrefillItem& item,
                                          int group, const ProductTurns& turns, RingPlace& keys,
                                          RingPlace& values) {
  const bool frees = threadIdx.x % 32 == 0;
  const auto pass_values = [&](int tile) {
    shared.value_ring.wait_full(values);
    std::byte* const its = shared.values[values.stage];
    if (item.is_masked(tile)) {
      const PartlySeen partly(item, S::kKeys, tile);
      if (any_not_finite<T, S>(partly, its, group)) clear_not_finite<T, S>(partly, its);
    }
    if (frees) shared.value_ring.empty[values.stage].arrive();
    values.advance(S::kStages);
  };
  if (frees) shared.queries_empty.arrive();
#pragma unroll 1
  for (int tile = item.begin; tile < item.end; ++tile) {
    shared.key_ring.wait_full(keys);
    if (tile > item.begin) pass_values(tile - 1);  // both warpgroups before their turns
    turns.wait();
    turns.pass();
    if (frees) shared.key_ring.empty[keys.stage].arrive();
    keys.advance(S::kStages);
  }
  pass_values(item.end - 1);
}

template <class T, class S>
__device__ void attend(const PrefillSm90Params& params, PrefillShared<S>& shared, int group) {
  const PrefillParams& p = params.common;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_row = group * S::kGroupRows + static_cast<int>(threadIdx.x) % 128 / 32 * 16;
  const std::byte* const queries = shared.queries + group * S::kGroupRows * kSwizzledRowBytes;
  const ProductTurns turns(group);
  RingPlace items = RingPlace::of_multiply(), keys = RingPlace::of_multiply(),
            values = RingPlace::of_multiply();
  uint32_t queries_parity = 0;
  while (true) {
    shared.item_ring.wait_full(items);
    const PrefillItem& item = shared.items[items.stage];
    if (item.num_rows < 0) break;
    if (group * S::kGroupRows >= item.num_rows) {
      if (item.begin < item.end) {
        shared.queries_full.wait(queries_parity);
        queries_parity ^= 1;
        pass_item<T, S>(shared, item, group, turns, keys, values);
      }
      shared.item_ring.empty[items.stage].arrive();
      items.advance(S::kItems);
      continue;
    }
    RowState<S> state;
#pragma unroll
    for (float& o : state.o) o = 0.0f;
    const int end = item.end, whole_begin = item.whole_begin, whole_end = item.whole_end;
    if (item.begin < end) {
      SeenKeys seen;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const KeyRange range = keys_of_row(p, item, first_row + 8 * h + lane / 4);
        seen.begin[h] = range.begin, seen.end[h] = range.end;
      }
      float s[S::kKeys / 2], shrink[2];
      uint32_t weights[S::kKeys / 4];
      const auto free_stage = [&](PhaseBarrier& empty) {
        if (lane == 0) empty.arrive();
      };
      // The scores of a tile have been multiplied: they become weights.
      const auto weigh = [&](int tile, auto may_be_masked) {
        hold(s);
        free_stage(shared.key_ring.empty[keys.stage]);
        keys.advance(S::kStages);
        if (may_be_masked && item.is_masked(tile)) seen.template mask<S>(tile * S::kKeys, s);
        state.weigh(s, p.scale_log2, shrink);
      };
      const auto finish_values = [&] {
        wait_for_products<0>();
        hold(state.o);
        free_stage(shared.value_ring.empty[values.stage]);
        values.advance(S::kStages);
      };
      // Before the products with the values of a tile.
      const auto guard_values = [&](int tile) {
        if (!item.is_masked(tile)) return;
        const PartlySeen partly(item, S::kKeys, tile);
        std::byte* const its = shared.values[values.stage];
        if (!any_not_finite<T, S>(partly, its, group)) return;
        take_out_not_finite<T, S>(partly, seen, tile * S::kKeys, its, weights, state);
      };
      const auto start_next_values = [&] {
        start_values<T, S>(shared.values[values.stage], weights, state.o);
      };
      shared.queries_full.wait(queries_parity);
      queries_parity ^= 1;
      shared.key_ring.wait_full(keys);
      show_to_copy_engine();
      turns.wait();
      start_scores<T, S>(queries, shared.keys[keys.stage], s);
      turns.pass();
      wait_for_products<0>();
      weigh(item.begin, std::true_type{});
      narrow_weights<T>(s, weights);
      const auto add_tile = [&](int tile, auto may_be_masked) {
        shared.key_ring.wait_full(keys);
        shared.value_ring.wait_full(values);
        if (may_be_masked) guard_values(tile - 1);
        show_to_copy_engine();
        turns.wait();
        start_scores<T, S>(queries, shared.keys[keys.stage], s);
        start_next_values();
        turns.pass();
        wait_for_products<1>();
        weigh(tile, may_be_masked);
        // The compiler moves the wait for products up between the weights, as far as the last
        // branch. So this loop, which ends at once, comes before it.
        shared.value_ring.wait_full(values);
        finish_values();
        state.shrink_values(shrink);
        narrow_weights<T>(s, weights);
      };
      int tile = item.begin + 1;
      while (tile < end) {
        // Most tiles: this one and the one before are seen whole by all rows.
#pragma unroll 1
        for (; tile > whole_begin && tile < whole_end; ++tile) add_tile(tile, std::false_type{});
        if (tile < end) add_tile(tile++, std::true_type{});
      }
      if (lane == 0) shared.queries_empty.arrive();
      shared.value_ring.wait_full(values);
      guard_values(end - 1);
      show_to_copy_engine();
      start_next_values();
      finish_values();
      if (item.has_no_page[0] != 0) spoil_rows<S>(p, item, seen, state.sum);
    }
    write_rows<T, S>(p, item, first_row, state);
    shared.item_ring.empty[items.stage].arrive();
    items.advance(S::kItems);
  }
  turns.end(group);
}

}  // namespace heddle::cuda::attention::prefill
