#include "core/math.h"
#include "ops/attention/cpu/attention_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/cpu/attention_cpu.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After foreach_target.h: compiled once per target.
#include "ops/attention/cpu/key_tile-inl.h"
#include "ops/attention/cpu/row_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::attention::HWY_NAMESPACE {
using namespace heddle::cpu::HWY_NAMESPACE;  // the toolbox: hn, load_f32, store_f32, ...

/// The part of [lo, hi) that lies in the tile at `base`, relative to it; empty where they do not
/// meet.
HWY_INLINE int clip(int64_t position, int64_t base, int tile) {
  const int64_t x = position - base;
  return static_cast<int>(x < 0 ? 0 : x > tile ? tile : x);
}

/// The query token of a row of an item.
HWY_INLINE int64_t token_of(const AttentionParams& p, const AttentionItem& item, int row) {
  return (item.first_row + row) / p.group_size;
}

/// Whether query `token` of a sequence with a tree mask sees the key at `position`, which is before
/// the sequence's end.
HWY_INLINE bool tree_sees(const AttentionItem& item, int64_t token, int64_t position) {
  const int64_t j = position - (item.kv_len - item.q_len);  // its number among the new tokens
  if (j < 0) return true;
  const int32_t* mask = item.tree + token * tree_mask_words(item.q_len);
  return (static_cast<uint32_t>(mask[j / 32]) >> (j % 32) & 1u) != 0;
}

/// A block of rows of one query token against the keys of the tile that its tree mask lets it see,
/// one run of them after the other: a run is to the sums what the visible part of a tile is without
/// a mask.
template <class T>
void attend_runs(const AttentionParams& p, const AttentionItem& item, int64_t base, int64_t token,
                 const QueryBlock& rows, ItemScratch& scratch) {
  for (int c = rows.lo; c < rows.hi;) {
    while (c < rows.hi && !tree_sees(item, token, base + c)) ++c;
    QueryBlock run{rows.first, rows.num_rows, c, c};
    while (c < rows.hi && tree_sees(item, token, base + c)) ++c;
    run.hi = c;
    if (run.lo < run.hi) attend_block_of<T>(p, run, scratch);
  }
}

/// The values [first, last) of a tile: where they lie, or decoded.
template <class T>
void find_values(const AttentionParams& p, int first, int last, ItemScratch& scratch) {
  for (int c = first; c < last; ++c) {
    const std::byte* row = scratch.places.rows[c] + p.value_distance;
    if constexpr (std::is_same_v<T, float8_e4m3>) {
      float* decoded = scratch.values + c * p.stride;
      decode_row(reinterpret_cast<const T*>(row), scratch.places.scales[c][p.value_scale_distance],
                 p.head_dim, decoded);
      row = reinterpret_cast<const std::byte*>(decoded);
    }
    scratch.value_rows[c] = row;
  }
}

/// All rows of an item against the tile of keys at position `base`. Rows that see the same part of
/// the tile go through it in blocks: all of them in a tile before the diagonal, the heads of one
/// token on it. A key that a row does not see takes no part in its sums, so what its value holds
/// (even NaN) has no effect.
template <class T>
void attend_tile(const AttentionParams& p, const AttentionItem& item, int64_t base, int64_t lo,
                 int64_t hi, ItemScratch& scratch) {
  const int tile = p.tile;
  const int first = clip(lo, base, tile), last = clip(hi, base, tile);
  KeyPlaces& places = scratch.places;
  p.cache->key_rows(item.seq, item.kv_head, base + first, last - first, places.rows + first);
  if constexpr (std::is_same_v<T, float8_e4m3>) {
    p.cache->key_scales(item.seq, item.kv_head, base + first, last - first, places.scales + first);
  }
  // Whole groups of kKeyLanes are loaded; places outside [first, last) repeat a key that may be
  // read, and are masked.
  const int begin = first / kKeyLanes * kKeyLanes;
  const int end = round_up(last, kKeyLanes);
  const auto repeat = [&](int c) {
    places.rows[c] = places.rows[first];
    if constexpr (std::is_same_v<T, float8_e4m3>) places.scales[c] = places.scales[first];
  };
  for (int c = begin; c < first; ++c) repeat(c);
  for (int c = last; c < end; ++c) repeat(c);
  // The values of this tile are needed after its scores, the keys of the next tile after that.
  for (int c = first; c < last; ++c) {
    prefetch_row<T>(places.rows[c] + p.value_distance, p.head_dim);
  }
  load_key_tile<T>(p, places, base, begin, end, scratch.keys);
  const int next = clip(hi, base + tile, tile);
  p.cache->key_rows(item.seq, item.kv_head, base + tile, next, scratch.next_rows);
  for (int c = 0; c < next; ++c) prefetch_row<T>(scratch.next_rows[c], p.head_dim);
  find_values<T>(p, first, last, scratch);

  const bool one_token = item.tree != nullptr;  // a block: its heads see the same new tokens
  for (int r = 0; r < item.num_rows;) {
    QueryBlock block{r, 0, clip(scratch.lo[r], base, tile), clip(scratch.hi[r], base, tile)};
    const int64_t token = token_of(p, item, r);
    do {
      ++block.num_rows;
      ++r;
    } while (r < item.num_rows && block.num_rows < kRowBlock &&
             clip(scratch.lo[r], base, tile) == block.lo &&
             clip(scratch.hi[r], base, tile) == block.hi &&
             !(one_token && token_of(p, item, r) != token));
    if (item.tree != nullptr) {
      attend_runs<ReadType<T>>(p, item, base, token, block, scratch);
    } else if (block.lo < block.hi) {
      attend_block_of<ReadType<T>>(p, block, scratch);
    }
  }
}

/// out [head_dim] = scale * x [head_dim], rotated where cos is given.
template <class T>
void load_query(const AttentionParams& p, const T* x, const float* cos, const float* sin,
                float* out) {
  const hn::ScalableTag<float> d;
  const int step = static_cast<int>(hn::Lanes(d));
  rotate_row(x, cos, sin, p.angles == nullptr ? 0 : p.angles->num_pairs, p.head_dim, out);
  for (int i = p.head_dim; i < p.stride; ++i) out[i] = 0.0f;
  for (int i = 0; i < p.stride; i += step) {
    hn::StoreU(hn::Mul(hn::LoadU(d, out + i), hn::Set(d, p.sm_scale)), d, out + i);
  }
}

/// Prepares the rows of an item: queries, empty sums, and the positions each sees.
template <class T>
void start_rows(const AttentionParams& p, const AttentionItem& item, ItemScratch& scratch) {
  const int stride = p.stride;
  float cos[RotaryAngles::kMaxPairs], sin[RotaryAngles::kMaxPairs];
  int64_t angles_of = -1;  // token
  for (int r = 0; r < item.num_rows; ++r) {
    const int64_t token = token_of(p, item, r);
    const int64_t head = item.kv_head * p.group_size + (item.first_row + r) % p.group_size;
    const int64_t position = item.kv_len - item.q_len + token;
    const bool causal = p.causal && item.tree == nullptr;
    const int64_t hi = causal && position + 1 < item.kv_len ? position + 1 : item.kv_len;
    const int64_t lo = p.window_left >= 0 ? position - p.window_left : 0;
    scratch.lo[r] = lo > 0 ? lo : 0;
    scratch.hi[r] = hi > 0 ? hi : 0;
    if (p.angles != nullptr && token != angles_of) {
      p.angles->at(position, cos, sin);
      angles_of = token;
    }
    const T* q =
        reinterpret_cast<const T*>(p.q) + (item.first_token + token) * p.q_token + head * p.q_head;
    load_query(p, q, cos, sin, scratch.q + r * stride);
    for (int i = 0; i < stride; ++i) scratch.o[r * stride + i] = 0.0f;
    scratch.state[r].max = kMinusInf;
    for (int i = 0; i < kKeyLanes; ++i) scratch.state[r].sum[i] = 0.0f;
  }
}

/// o = T(sums / sum of the weights), zeros where no key was seen, and the row's lse.
template <class T>
void finish_rows(const AttentionParams& p, const AttentionItem& item, ItemScratch& scratch) {
  const hn::ScalableTag<float> d;
  const int step = static_cast<int>(hn::Lanes(d));
  const int stride = p.stride;
  for (int r = 0; r < item.num_rows; ++r) {
    const int64_t token = item.first_token + (item.first_row + r) / p.group_size;
    const int64_t head = item.kv_head * p.group_size + (item.first_row + r) % p.group_size;
    const float sum = sum_lanes(scratch.state[r].sum);
    const bool empty = sum == 0.0f;
    const float* from = scratch.o + r * stride;
    T* to = reinterpret_cast<T*>(p.o) + token * p.o_token + head * p.o_head;
    const auto divisor = hn::Set(d, empty ? 1.0f : sum);
    int i = 0;
    for (; i + step <= p.head_dim; i += step) {
      store_f32(d, hn::Div(hn::LoadU(d, from + i), divisor), to + i);
    }
    const size_t rest = static_cast<size_t>(p.head_dim - i);
    if (rest != 0) store_f32_n(d, hn::Div(hn::LoadU(d, from + i), divisor), to + i, rest);
    if (p.lse != nullptr) {
      p.lse[token * p.lse_token + head * p.lse_head] =
          empty ? kMinusInf : log_sum_exp(scratch.state[r].max, sum);
    }
  }
}

template <class T>
void attend_keys(const AttentionParams& p, const AttentionItem& item, ItemScratch& scratch) {
  int64_t lo = item.kv_len, hi = 0;  // what any of the rows sees
  for (int r = 0; r < item.num_rows; ++r) {
    if (scratch.lo[r] >= scratch.hi[r]) continue;
    lo = scratch.lo[r] < lo ? scratch.lo[r] : lo;
    hi = scratch.hi[r] > hi ? scratch.hi[r] : hi;
  }
  const int tile = p.tile;
  for (int64_t base = lo / tile * tile; base < hi; base += tile) {
    attend_tile<T>(p, item, base, lo, hi, scratch);
  }
}

void attend_item(const AttentionParams& p, const AttentionItem& item) {
  ItemScratch scratch;
  switch (p.q_dtype) {
    case DType::kFloat16: start_rows<half>(p, item, scratch); break;
    case DType::kBFloat16: start_rows<bfloat16>(p, item, scratch); break;
    default: start_rows<float>(p, item, scratch);
  }
  switch (p.kv_dtype) {
    case DType::kFloat16: attend_keys<half>(p, item, scratch); break;
    case DType::kBFloat16: attend_keys<bfloat16>(p, item, scratch); break;
    case DType::kFloat8E4M3: attend_keys<float8_e4m3>(p, item, scratch); break;
    default: attend_keys<float>(p, item, scratch);
  }
  switch (p.q_dtype) {
    case DType::kFloat16: finish_rows<half>(p, item, scratch); break;
    case DType::kBFloat16: finish_rows<bfloat16>(p, item, scratch); break;
    default: finish_rows<float>(p, item, scratch);
  }
}

}  // namespace heddle::cpu::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu::attention {
HWY_EXPORT(attend_item);
void attend(const AttentionParams& params, const AttentionItem& item) {
  HWY_DYNAMIC_DISPATCH(attend_item)(params, item);
}
}  // namespace heddle::cpu::attention
#endif
