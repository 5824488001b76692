// Loading a tile of keys: decoded or widened to f32, rotated where wanted, transposed so that lanes
// are keys. Include inside a file that Highway compiles once per target.

#if defined(HEDDLE_OPS_ATTENTION_KEY_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_OPS_ATTENTION_KEY_TILE_INL_H_
#undef HEDDLE_OPS_ATTENTION_KEY_TILE_INL_H_
#else
#define HEDDLE_OPS_ATTENTION_KEY_TILE_INL_H_
#endif

#include <cstring>
#include <type_traits>

#include "cpu/rotate-inl.h"
#include "ops/attention/cpu/attention_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::attention::HWY_NAMESPACE {
using namespace heddle::cpu::HWY_NAMESPACE;  // the toolbox: hn, load_f32, store_f32, ...

/// Rows of K that are transposed together.
constexpr int kTransposedKeys = 4;

/// The keys of a tile, and their scales in a cache of f8e4m3.
struct KeyPlaces {
  std::byte* rows[kMaxTileKeys];
  float* scales[kMaxTileKeys];
};

/// out [head_dim] = x [head_dim] rotated, widened to f32.
template <class T>
HWY_INLINE void rotate_row(const T* x, const float* cos, const float* sin, int num_pairs,
                           int head_dim, float* out) {
  rotate_pairs(x, x + num_pairs, cos, sin, num_pairs, out, out + num_pairs);
  const hn::ScalableTag<float> d;
  const int step = static_cast<int>(hn::Lanes(d));
  int i = 2 * num_pairs;
  for (; i + step <= head_dim; i += step) hn::StoreU(load_f32(d, x + i), d, out + i);
  const size_t rest = static_cast<size_t>(head_dim - i);
  if (rest != 0) store_f32_n(d, load_f32_n(d, x + i, rest), out + i, rest);
}

/// Transposes a 4 x 4 block: out[j * out_stride + i] = rows i, element j, for j < n.
template <class V>
HWY_INLINE void store_transposed(V a, V b, V c, V e, int n, float* out, int out_stride) {
  const hn::CappedTag<float, kTransposedKeys> d;
  const auto ab_low = hn::InterleaveLower(d, a, b), ab_high = hn::InterleaveUpper(d, a, b);
  const auto ce_low = hn::InterleaveLower(d, c, e), ce_high = hn::InterleaveUpper(d, c, e);
  // Two elements of each of two rows, as pairs, make one element of four rows.
  hn::StoreU(hn::ConcatLowerLower(d, ce_low, ab_low), d, out);
  if (n > 1) hn::StoreU(hn::ConcatUpperUpper(d, ce_low, ab_low), d, out + out_stride);
  if (n > 2) hn::StoreU(hn::ConcatLowerLower(d, ce_high, ab_high), d, out + 2 * out_stride);
  if (n > 3) hn::StoreU(hn::ConcatUpperUpper(d, ce_high, ab_high), d, out + 3 * out_stride);
}

/// keys[d * tile] .. [d * tile + 3] = element d of four rows.
template <class T>
HWY_INLINE void transpose_rows(const T* const* rows, int head_dim, int tile, float* keys) {
  const hn::CappedTag<float, kTransposedKeys> d;
  int i = 0;
  for (; i + kTransposedKeys <= head_dim; i += kTransposedKeys) {
    store_transposed(load_f32(d, rows[0] + i), load_f32(d, rows[1] + i), load_f32(d, rows[2] + i),
                     load_f32(d, rows[3] + i), kTransposedKeys, keys + i * tile, tile);
  }
  if (i == head_dim) return;
  const int rest = head_dim - i;
  const size_t n = static_cast<size_t>(rest);
  store_transposed(load_f32_n(d, rows[0] + i, n), load_f32_n(d, rows[1] + i, n),
                   load_f32_n(d, rows[2] + i, n), load_f32_n(d, rows[3] + i, n), rest,
                   keys + i * tile, tile);
}

/// Asks for a row of K or V ahead of its use. Pages end the streams that the machine would follow
/// by itself.
template <class T>
HWY_INLINE void prefetch_row(const std::byte* row, int head_dim) {
  constexpr int kCacheLine = 64;
  const int bytes = head_dim * static_cast<int>(sizeof(T));
  for (int i = 0; i < bytes; i += kCacheLine) __builtin_prefetch(row + i, 0, 2);
}

/// out [n] = scale * codes [n].
HWY_INLINE void decode_row(const float8_e4m3* codes, float scale, int n, float* out) {
  const hn::ScalableTag<float> d;
  const int step = static_cast<int>(hn::Lanes(d));
  const auto factor = hn::Set(d, scale * kCodeFactor);
  int i = 0;
  for (; i + step <= n; i += step) {
    hn::StoreU(hn::Mul(load_codes(d, codes + i), factor), d, out + i);
  }
  if (i == n) return;
  const size_t rest = static_cast<size_t>(n - i);
  float8_e4m3 last[hn::MaxLanes(d)] = {};
  std::memcpy(last, codes + i, rest);
  store_f32_n(d, hn::Mul(load_codes(d, last), factor), out + i, rest);
}

/// Transposes 16 rows of 16 codes, each of which is shuffled with the one 8 further on, four times.
HWY_INLINE void transpose_codes(const float8_e4m3* const* rows, uint8_t* out) {
  static_assert(kKeyLanes == 16);
  const hn::Full128<uint8_t> d;
  hn::Vec<decltype(d)> x[kKeyLanes], y[kKeyLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kKeyLanes; ++i) {
    x[i] = hn::LoadU(d, reinterpret_cast<const uint8_t*>(rows[i]));
  }
#pragma GCC unroll 4
  for (int round = 0; round < 4; ++round) {
#pragma GCC unroll 8
    for (int i = 0; i < kKeyLanes / 2; ++i) {
      y[2 * i] = hn::InterleaveLower(d, x[i], x[i + kKeyLanes / 2]);
      y[2 * i + 1] = hn::InterleaveUpper(d, x[i], x[i + kKeyLanes / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kKeyLanes; ++i) x[i] = y[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < kKeyLanes; ++i) hn::Store(x[i], d, out + i * kKeyLanes);
}

/// keys[i * tile + c] = element i of row c, decoded, for kKeyLanes rows of codes: transposed as
/// codes, which are a quarter of the bytes.
HWY_INLINE void decode_keys(const std::byte* const* rows, const float* const* scales, int head_dim,
                            int tile, float* keys) {
  const hn::CappedTag<float, kKeyLanes> d;
  const int step = static_cast<int>(hn::Lanes(d));
  alignas(64) float factors[kKeyLanes];
  for (int c = 0; c < kKeyLanes; ++c) factors[c] = *scales[c] * kCodeFactor;
  alignas(64) uint8_t block[kKeyLanes * kKeyLanes];  // [elements, keys]
  float8_e4m3 last[kKeyLanes][kKeyLanes] = {};
  const float8_e4m3* parts[kKeyLanes];
  for (int i = 0; i < head_dim; i += kKeyLanes) {
    const int n = head_dim - i < kKeyLanes ? head_dim - i : kKeyLanes;
    for (int c = 0; c < kKeyLanes; ++c) {
      parts[c] = reinterpret_cast<const float8_e4m3*>(rows[c]) + i;
      if (n == kKeyLanes) continue;
      std::memcpy(last[c], parts[c], static_cast<size_t>(n));
      parts[c] = last[c];
    }
    transpose_codes(parts, block);
    for (int c = 0; c < kKeyLanes; c += step) {
      const auto factor = hn::Load(d, factors + c);
      const float8_e4m3* codes = reinterpret_cast<const float8_e4m3*>(block) + c;
      for (int j = 0; j < n; ++j) {
        hn::StoreU(hn::Mul(load_codes(d, codes + j * kKeyLanes), factor), d,
                   keys + (i + j) * tile + c);
      }
    }
  }
}

/// What rows of a cache of T are read as.
template <class T>
using ReadType = std::conditional_t<std::is_same_v<T, float8_e4m3>, float, T>;

/// Key `c` of a tile: where it lies, or decoded into `room` [head_dim].
template <class T>
HWY_INLINE const ReadType<T>* readable_key(const KeyPlaces& places, int c, int head_dim,
                                           float* room) {
  const T* row = reinterpret_cast<const T*>(places.rows[c]);
  if constexpr (std::is_same_v<T, float8_e4m3>) {
    decode_row(row, *places.scales[c], head_dim, room);
    return room;
  } else {
    return row;
  }
}

/// The keys [begin, end) of a tile as they are into keys [head_dim, tile].
template <class T>
void load_plain_keys(const KeyPlaces& places, int head_dim, int tile, int begin, int end,
                     float* keys) {
  if constexpr (std::is_same_v<T, float8_e4m3>) {
    for (int c = begin; c < end; c += kKeyLanes) {
      decode_keys(places.rows + c, places.scales + c, head_dim, tile, keys + c);
    }
  } else {
    for (int c = begin; c < end; c += kTransposedKeys) {
      const T* four[kTransposedKeys];
      for (int i = 0; i < kTransposedKeys; ++i) {
        four[i] = reinterpret_cast<const T*>(places.rows[c + i]);
      }
      transpose_rows(four, head_dim, tile, keys + c);
    }
  }
}

/// The keys [begin, end) of a tile into keys [head_dim, tile], rotated where the call asks for it;
/// begin and end are multiples of kKeyLanes. `position` is that of the tile's first key.
template <class T>
void load_key_tile(const AttentionParams& p, const KeyPlaces& places, int64_t position, int begin,
                   int end, float* keys) {
  const int tile = p.tile;
  if (p.angles == nullptr) return load_plain_keys<T>(places, p.head_dim, tile, begin, end, keys);

  // Always walked from the tile's first position: a key's angle must not depend on where the
  // visible part begins.
  float cos[RotaryAngles::kMaxPairs], sin[RotaryAngles::kMaxPairs];
  float rotated[kTransposedKeys][kMaxHeadDim], decoded[kMaxHeadDim];
  const float* four[kTransposedKeys];
  for (int i = 0; i < kTransposedKeys; ++i) four[i] = rotated[i];
  RotaryWalk walk(*p.angles, position);
  for (int c = 0; c < end; ++c) {
    walk.next(cos, sin);
    if (c < begin) continue;
    rotate_row(readable_key<T>(places, c, p.head_dim, decoded), cos, sin, p.angles->num_pairs,
               p.head_dim, rotated[c % kTransposedKeys]);
    if (c % kTransposedKeys != kTransposedKeys - 1) continue;
    transpose_rows(four, p.head_dim, tile, keys + c - (kTransposedKeys - 1));
  }
}

}  // namespace heddle::cpu::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
