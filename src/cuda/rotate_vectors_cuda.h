#pragma once

#include "cuda/convert_cuda.h"
#include "cuda/rotary_cuda.h"

namespace heddle::cuda {

/// kVec neighbours of a row, read and written as one; a row's first element lies at a multiple of
/// the vector's bytes.
template <class T, int kVec>
struct alignas(kVec * sizeof(T) < 16 ? kVec * sizeof(T) : 16) Elements {
  T at[kVec];
};
template <class T, int kVec>
__device__ Elements<T, kVec> load_elements(const void* row, int first) {
  return reinterpret_cast<const Elements<T, kVec>*>(static_cast<const T*>(row) + first)[0];
}
template <class T, int kVec>
__device__ void store_elements(void* row, int first, const Elements<T, kVec>& v) {
  reinterpret_cast<Elements<T, kVec>*>(static_cast<T*>(row) + first)[0] = v;
}

/// The pairs (a[i], b[i]), turned and rounded once.
template <class T, int kVec>
struct ElementPairs {
  Elements<T, kVec> a, b;

  ElementPairs() = default;
  __device__ ElementPairs(const void* row, int first_pair, int num_pairs)
      : a(load_elements<T, kVec>(row, first_pair)),
        b(load_elements<T, kVec>(row, first_pair + num_pairs)) {}

  __device__ void turn(const CosSin (&turns)[kVec]) {
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      const float2 turned = rotate(widen(a.at[i]), widen(b.at[i]), turns[i]);
      a.at[i] = narrow<T>(turned.x);
      b.at[i] = narrow<T>(turned.y);
    }
  }
  __device__ void store(void* row, int first_pair, int num_pairs) const {
    store_elements(row, first_pair, a);
    store_elements(row, first_pair + num_pairs, b);
  }
};

/// The angles of one token for all its heads: the threads of a block compute them together.
struct SharedTurns {
  alignas(16) float cos[RotaryFrequencies::kMaxPairs];
  alignas(16) float sin[RotaryFrequencies::kMaxPairs];

  /// By all threads of the block; a barrier comes after it.
  __device__ void put(int64_t position, const RotaryFrequencies& f) {
    // As memory: the cache of parameters has one address at a time for a warp.
    const Turns* frequency = f.frequency;
    asm("" : "+l"(frequency));
    for (int d = static_cast<int>(threadIdx.x); d < f.num_pairs;
         d += static_cast<int>(blockDim.x)) {
      const CosSin turn = cos_sin_at(position, frequency[d]);
      cos[d] = turn.cos;
      sin[d] = turn.sin;
    }
  }
  /// The same with the barrier.
  __device__ void fill(int64_t position, const RotaryFrequencies& f) {
    put(position, f);
    __syncthreads();
  }
  /// Of kVec pairs from `first` on, a multiple of kVec.
  template <int kVec>
  __device__ void read(int first, CosSin (&turns)[kVec]) const {
    const auto c = load_elements<float, kVec>(cos, first),
               s = load_elements<float, kVec>(sin, first);
#pragma unroll
    for (int i = 0; i < kVec; ++i) turns[i] = {c.at[i], s.at[i]};
  }
};

}  // namespace heddle::cuda
