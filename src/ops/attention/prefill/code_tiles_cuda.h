#pragma once

// Tiles of a cache of f8e4m3 in prefill. A thread copies vectors of 16 codes to a place of its own,
// and when they have arrived, makes 16 elements of T of each, in the tile:
//
//   pages --cp.async--> codes of the thread --> keys: the codes, which T holds exactly
//                                           --> values: scale * code, rounded to T
//
// Scores are multiplied with the scales of their keys in f32. Values are scaled here and not in
// their weights, so that they are what a cache of T would hold, but for the rounding of codes:
// their weights stay at most 1, however small the scales are, and what is not finite is seen.

#include <cstdint>

#include "cuda/convert_cuda.h"

#include "ops/attention/device/finite_values_cuda.h"
#include "ops/attention/prefill/softmax_cuda.h"
#include "ops/attention/prefill/tile_cuda.h"

namespace heddle::cuda::attention::prefill {

/// Queries as Copier copies them; codes of keys and values of the same rows.
template <class S>
struct CodeCopier : Copier<S> {
  using Base = Copier<S>;
  static constexpr int kVectors = S::kCodeVectors, kRows = S::kKeys / Base::kRowStep;

  std::byte *shared, *codes;  // of the block; of the thread

  __device__ CodeCopier(std::byte* its_shared, int head_dim)
      : Base(its_shared, head_dim),
        shared(its_shared),
        codes(its_shared + S::kCodesAt + threadIdx.x * 16) {}

  /// Rows of heads up to 64 have vectors for half of the threads.
  [[nodiscard]] __device__ bool has_vectors() const { return S::kDim > 64 || Base::vector < 4; }
  [[nodiscard]] __device__ std::byte* place(int i, int v) const {
    return codes + (i * kVectors + v) * S::kThreads * 16;
  }

  /// As Copier's, of codes; there is one place for them, whatever the tile.
  __device__ void copy(int /*tile_at*/, int i, const std::byte* from, bool in_range,
                       bool is_aligned) const {
    if (!has_vectors()) return;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int first = (Base::vector + 8 * v) * 16, left = Base::head_dim - first;
      if (is_aligned) {
        copy_async_16(place(i, v), from + first, in_range && left > 0 ? 16 : 0);
        continue;
      }
#pragma unroll 1
      for (int e = 0; e < 16; ++e) {
        place(i, v)[e] = in_range && e < left ? from[first + e] : std::byte{0};
      }
    }
  }
  __device__ void put_nan(int /*tile_at*/, int i) const {
    for (int v = 0; v < kVectors; ++v) {
      *reinterpret_cast<uint4*>(place(i, v)) = {~0u, ~0u, ~0u, ~0u};
    }
  }

  /// Makes the tile of keys of the thread's codes.
  template <class T>
  __device__ void put_keys() const {
    put<T>(S::kKeysAt, [](int) { return 1.0f; });
  }
  /// Makes the tile of values. `scales`: of its keys, then of its values. Returns whether one is
  /// not finite.
  template <class T>
  __device__ bool put_values(const KvScaleParams& p, const float* scales) const {
    return put<T>(S::kValuesAt,
                  [&](int row) { return p.has_token_scales ? scales[S::kKeys + row] : p.v_scale; });
  }

 private:
  template <class T, class ScaleOf>
  __device__ bool put(int tile_at, const ScaleOf& scale_of) const {
    constexpr uint32_t kOne = kExponents<T> & ~(kExponents<T> << 1);
    if (!has_vectors()) return false;
    uint32_t found = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = Base::row + i * Base::kRowStep;
      const float scale = scale_of(row);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const uint4 four = *reinterpret_cast<const uint4*>(place(i, v));
        const uint32_t words[4] = {four.x, four.y, four.z, four.w};
        uint32_t two[8];
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          const uint32_t codes_of_two = words[e / 2] >> e % 2 * 16;
          const float2 x = widen_two<__half>(widen_two_e4m3(static_cast<uint16_t>(codes_of_two)));
          two[e] = narrow_two<T>({x.x * scale, x.y * scale});
          // An exponent of all ones: 1 added to it carries into the sign.
          found |= (two[e] & kExponents<T>)+kOne;
        }
        const int vector = 2 * (Base::vector + 8 * v);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          auto* const to = shared + tile_at + vector_offset<S::kDim>(row, vector + half);
          const uint32_t* const of = two + 4 * half;
          *reinterpret_cast<uint4*>(to) = {of[0], of[1], of[2], of[3]};
        }
      }
    }
    return (found & 0x80008000u) != 0;
  }
};

/// The scales of the keys of a tile, then of its values.
template <class S>
__device__ float* scales_of_tile(std::byte* shared, int tile) {
  return reinterpret_cast<float*>(shared + S::kScalesAt) + (tile & 1) * 2 * S::kKeys;
}

/// Starts to copy the scales of this thread's key and value of a tile, 0 where there is none. They
/// belong to the next group of copies. Before the key's address takes the place of its entry.
template <class S, class C>
__device__ void fetch_scales(const PrefillParams& p, const KvScaleParams& scales,
                             const PrefillItem& item, const KeyTiles<S, C>& keys, int tile,
                             std::byte* shared) {
  if (!scales.has_token_scales || threadIdx.x >= S::kKeys) return;
  const int key = tile * S::kKeys + static_cast<int>(threadIdx.x);
  bool in_range = key < keys.num_keys;
  const std::byte* from = nullptr;
  if (in_range) {
    const int64_t page = keys.entry(p, tile);
    in_range = is_page(p.call.kv, page);
    from = scale_address(scales, page, item.kv_head, page_slot(p.call.kv, key).slot);
  }
  float* const to = scales_of_tile<S>(shared, tile) + threadIdx.x;
  copy_async_4(to, from, in_range);
  copy_async_4(to + S::kKeys, from + scales.value_distance, in_range);
}

/// Multiplies scores with the scales of their keys.
template <class S>
__device__ void scale_scores(const float* scales, int lane, Scores<S>& s) {
#pragma unroll
  for (int n = 0; n < S::kKeys / 8; ++n) {
    const float2 two = *reinterpret_cast<const float2*>(scales + n * 8 + lane % 4 * 2);
#pragma unroll
    for (int m = 0; m < S::kProductRows; ++m) {
      s[m][n][0] *= two.x, s[m][n][1] *= two.y;
      s[m][n][2] *= two.x, s[m][n][3] *= two.y;
    }
  }
}

}  // namespace heddle::cuda::attention::prefill
