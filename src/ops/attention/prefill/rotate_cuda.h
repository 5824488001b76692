#pragma once

// Rotation of queries and keys inside the prefill kernel.
//
// What is rotated counts twice: x = high + low, both of type T, where low is what the rounding to T
// takes off. The scores are the sums of high * high, low * high and high * low, so the rotation
// costs no precision.

#include <cstdint>

#include "cuda/convert_cuda.h"
#include "cuda/rotary_cuda.h"

#include "ops/attention/prefill/tile_cuda.h"

namespace heddle::cuda::attention::prefill {

/// How the threads of a block share the pairs of rows: eight pairs of a row each, kRowStep rows at
/// a time.
template <class S>
struct PairSplit {
  static constexpr int kThreadsPerRow = S::kDim / 16, kRowStep = S::kThreads / kThreadsPerRow;
  using Rotations8 = CosSin[8];

  int part, row;

  __device__ PairSplit()
      : part(static_cast<int>(threadIdx.x) % kThreadsPerRow),
        row(static_cast<int>(threadIdx.x) / kThreadsPerRow) {}

  /// The angles of the thread's pairs at a position, exact.
  __device__ void rotations_at(int position, const Turns* frequencies,
                               Rotations8& rotations) const {
#pragma unroll
    for (int e = 0; e < 8; ++e) rotations[e] = cos_sin_at(position, frequencies[8 * part + e]);
  }
};

/// Rotates pair `pair` of a row of a tile and writes its low parts; the pairs past the last are the
/// elements that stay, two each.
template <class T, class S>
__device__ void rotate_pair(std::byte* high, std::byte* low, int row, int pair, int num_pairs,
                            CosSin rotation) {
  const bool rotations = pair < num_pairs;
  const uint32_t at[2] = {
      element_offset<S::kDim>(row, rotations ? pair : 2 * pair),
      element_offset<S::kDim>(row, rotations ? pair + num_pairs : 2 * pair + 1)};
  if (!rotations) {
    *reinterpret_cast<T*>(low + at[0]) = *reinterpret_cast<T*>(low + at[1]) = narrow<T>(0.0f);
    return;
  }
  const float2 rotated = rotate(widen(*reinterpret_cast<const T*>(high + at[0])),
                                widen(*reinterpret_cast<const T*>(high + at[1])), rotation);
  const T top[2] = {narrow<T>(rotated.x), narrow<T>(rotated.y)};
  *reinterpret_cast<T*>(high + at[0]) = top[0];
  *reinterpret_cast<T*>(high + at[1]) = top[1];
  *reinterpret_cast<T*>(low + at[0]) = narrow<T>(rotated.x - widen(top[0]));
  *reinterpret_cast<T*>(low + at[1]) = narrow<T>(rotated.y - widen(top[1]));
}

/// Two neighbouring elements each of a and b, which are pairs: rotated, and what their rounding
/// takes off.
template <class T>
__device__ void rotate_words(uint32_t& a, uint32_t& b, uint32_t& low_a, uint32_t& low_b,
                             const CosSin& first, const CosSin& second) {
  const float2 x = widen_two<T>(a), y = widen_two<T>(b);
  const float2 left = rotate(x.x, y.x, first), right = rotate(x.y, y.y, second);
  a = narrow_two<T>({left.x, right.x});
  b = narrow_two<T>({left.y, right.y});
  const float2 top_a = widen_two<T>(a), top_b = widen_two<T>(b);
  low_a = narrow_two<T>({left.x - top_a.x, right.x - top_a.y});
  low_b = narrow_two<T>({left.y - top_b.x, right.y - top_b.y});
}

/// Eight pairs of a row, which are two vectors where the number of pairs is a multiple of eight.
template <class T, class S>
__device__ void rotate_part(std::byte* high, std::byte* low, int row, int part, int num_pairs,
                            const CosSin (&rotations)[8]) {
  if (num_pairs % 8 != 0) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      rotate_pair<T, S>(high, low, row, 8 * part + e, num_pairs, rotations[e]);
    }
    return;
  }
  const bool is_rotated = part < num_pairs / 8;
  const uint32_t at[2] = {
      vector_offset<S::kDim>(row, is_rotated ? part : 2 * part),
      vector_offset<S::kDim>(row, is_rotated ? part + num_pairs / 8 : 2 * part + 1)};
  uint4 low_a{}, low_b{};
  if (is_rotated) {
    auto& to_a = *reinterpret_cast<uint4*>(high + at[0]);
    auto& to_b = *reinterpret_cast<uint4*>(high + at[1]);
    uint4 a = to_a, b = to_b;
    rotate_words<T>(a.x, b.x, low_a.x, low_b.x, rotations[0], rotations[1]);
    rotate_words<T>(a.y, b.y, low_a.y, low_b.y, rotations[2], rotations[3]);
    rotate_words<T>(a.z, b.z, low_a.z, low_b.z, rotations[4], rotations[5]);
    rotate_words<T>(a.w, b.w, low_a.w, low_b.w, rotations[6], rotations[7]);
    to_a = a;
    to_b = b;
  }
  *reinterpret_cast<uint4*>(low + at[0]) = low_a;
  *reinterpret_cast<uint4*>(low + at[1]) = low_b;
}

/// Leaves the frequencies in shared memory: threads would read other places of a parameter one
/// after the other.
template <class S>
__device__ void leave_frequencies(const RotaryFrequencies& rope, Turns* frequencies) {
#pragma unroll 1
  for (int pair = static_cast<int>(threadIdx.x); pair < S::kDim / 2; pair += S::kThreads) {
    frequencies[pair] = pair < rope.num_pairs ? rope.frequency[pair] : 0;
  }
}

/// The queries of a block, each angle exact.
template <class T, class S>
__device__ void rotate_queries(const PrefillParams& p, int num_pairs, const PrefillItem& item,
                               std::byte* shared) {
  const PairSplit<S> mine;
  const auto* const frequencies = reinterpret_cast<const Turns*>(shared + S::kFrequenciesAt);
#pragma unroll 1
  for (int row = mine.row; row < item.num_rows; row += PairSplit<S>::kRowStep) {
    CosSin rotations[8];
    mine.rotations_at(item.kv_len - item.q_len + row_of(p, item, row).token, frequencies,
                      rotations);
    rotate_part<T, S>(shared, shared + S::kLowQueriesAt, row, mine.part, num_pairs, rotations);
  }
}

/// The keys of a tile. The angle of a thread's first key is exact, the next ones turn by kRowStep
/// positions at a time in f32. Positions alone decide, since tiles begin at fixed ones.
template <class T, class S>
__device__ void rotate_keys(int num_pairs, int first_key, std::byte* shared) {
  using R = PairSplit<S>;
  const R mine;
  const auto* const frequencies = reinterpret_cast<const Turns*>(shared + S::kFrequenciesAt);
  CosSin rotations[8], steps[8];
  mine.rotations_at(first_key + mine.row, frequencies, rotations);
  mine.rotations_at(R::kRowStep, frequencies, steps);
#pragma unroll 1
  for (int row = mine.row; row < S::kKeys; row += R::kRowStep) {
    rotate_part<T, S>(shared + S::kKeysAt, shared + S::kLowKeysAt, row, mine.part, num_pairs,
                      rotations);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      rotations[e] = {fmaf(-rotations[e].sin, steps[e].sin, rotations[e].cos * steps[e].cos),
                      fmaf(rotations[e].sin, steps[e].cos, rotations[e].cos * steps[e].sin)};
    }
  }
}

}  // namespace heddle::cuda::attention::prefill
