#pragma once

#include "ops/lora_device/expand_product_cuda.h"
#include "ops/lora_device/operands_cuda.h"
#include "ops/lora_device/outputs_cuda.h"

namespace heddle::cuda::lora {

// Rows that begin at any address, read and written in vectors of 16 bytes all the same. This is
// what the general kernels need to multiply 16 rows of h with 256 outputs of B, whatever the layout
// of B, and to add the products to y. The row below begins 6 bytes behind a multiple of 16:
//
//   16 bytes each     |......xxxxxxxxxx|xxxxxxxxxxxxxxxx|xxxxxx..........|
//   read              two vectors hold the 8 elements of a lane; they are shifted together
//   written           5 elements one by one, then whole vectors, then 3 elements one by one

inline constexpr int kBlockOutputs = 256;
inline constexpr int kWarpColumns = kGroupOutputs / kProductOutputs;  // products across a warp
static_assert(kBlockOutputs == kBlockWarps * kGroupOutputs);

/// The first n of 8 elements, and zeros behind them.
__device__ inline uint4 keep_first(const uint4& v, int n) {
  const auto keep = [&](uint32_t two, int i) {
    return n >= i + 2 ? two : n > i ? two & 0xffffu : 0u;
  };
  return {keep(v.x, 0), keep(v.y, 2), keep(v.z, 4), keep(v.w, 6)};
}

/// Elements [0, min(8, n)) of a row, and zeros behind them, loaded one by one. Slow, for rare
/// cases.
__device__ inline uint4 load_slowly(const std::byte* from, int n) {
  uint64_t low = 0, high = 0;
#pragma unroll 1
  for (int i = min(n, 8) - 1; i >= 0; --i) {
    high = high << 16 | low >> 48;
    low = low << 16 | reinterpret_cast<const uint16_t*>(from)[i];
  }
  return {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
          static_cast<uint32_t>(high >> 32)};
}

/// to[i] = elements [0, min(8, n[i])) from from[i] on, and zeros behind them. Each row is read by
/// the one or two vectors of 16 bytes that hold it, and no load waits for another. `end` is where
/// the array ends: nothing is read from there on. Bytes of the first vector that lie before the row
/// are read.
template <int kNum>
__device__ void load_anywhere(const std::byte* const (&from)[kNum], const int (&n)[kNum],
                              const std::byte* end, uint4 (&to)[kNum]) {
  uint4 low[kNum], high[kNum];
#pragma unroll
  for (int i = 0; i < kNum; ++i) {
    const auto address = reinterpret_cast<uintptr_t>(from[i]);
    const auto* at = reinterpret_cast<const uint4*>(address & ~uintptr_t{15});
    const int bytes = static_cast<int>(address & 15), last = bytes + 2 * min(n[i], 8);
    const bool fits =
        n[i] > 0 && reinterpret_cast<const std::byte*>(at + (last > 16 ? 2 : 1)) <= end;
    low[i] = high[i] = {0, 0, 0, 0};
    if (fits) low[i] = __ldg(at);
    if (fits && last > 16) high[i] = __ldg(at + 1);
  }
#pragma unroll
  for (int i = 0; i < kNum; ++i) {
    const auto address = reinterpret_cast<uintptr_t>(from[i]);
    const int bytes = static_cast<int>(address & 15), last = bytes + 2 * min(n[i], 8);
    const auto* at = reinterpret_cast<const std::byte*>(address & ~uintptr_t{15});
    to[i] = keep_first(shift_down(low[i], high[i], bytes), n[i]);
    if (n[i] > 0 && at + (last > 16 ? 32 : 16) > end) to[i] = load_slowly(from[i], n[i]);
  }
}

/// B of an adapter as it lies in memory, from the first output of a warp on.
struct GeneralWeights {
  const std::byte* b;
  int64_t output_bytes, rank_bytes;  // from one to the next
  const std::byte* end;              // of B; used where the ranks of an output are contiguous
  int rank;                          // of the adapter
  int left;                          // outputs of B from the warp's first one on

  GeneralWeights() = default;
  /// stride: elements from one output to the next; of a transposed B from one rank to the next.
  __device__ GeneralWeights(const void* data, int64_t stride, bool is_transposed, int rank,
                            int first_output, int width)
      : b(static_cast<const std::byte*>(data)),
        output_bytes(is_transposed ? 2 : stride * 2),
        rank_bytes(is_transposed ? stride * 2 : 2),
        end(b + (width - 1) * output_bytes + rank * 2),
        rank(rank),
        left(width - first_output) {
    b += first_output * output_bytes;
  }

  /// Loads what a lane multiplies: all ranks of an adapter with up to 16, else the 32 ranks from
  /// first_rank on.
  __device__ void load(int first_rank, Weights<2, kWarpColumns>& to) const {
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const bool is_narrow = rank <= 16;
    const int each = is_narrow ? 4 : 8, first = first_rank + q * each;
    const int there = max(0, min(each, rank - first));
    const std::byte* from[kWarpColumns];
    int num[kWarpColumns];
    uint4 v[kWarpColumns];
#pragma unroll
    for (int i = 0; i < kWarpColumns; ++i) {
      const int output = output_of(i, g);
      from[i] = b + first * rank_bytes + output * output_bytes;
      num[i] = output < left ? there : 0;
    }
    if (rank_bytes == 2) {
      load_anywhere(from, num, end, v);
    } else {
#pragma unroll
      for (int i = 0; i < kWarpColumns; ++i) {
        v[i] = gather_8(reinterpret_cast<const uint16_t*>(from[i]), rank_bytes / 2, num[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kWarpColumns; ++i) {
      to.v[i][0] = {v[i].x, v[i].y};
      to.v[i][1] = {v[i].z, v[i].w};
    }
  }
};

/// In shared memory: the sums of 16 rows and 256 outputs, on their way from the lanes that computed
/// them to the lanes that add them to y. Behind every 32 outputs one float is left free, so that
/// neither the stores nor the loads of a warp conflict in a bank.
inline constexpr int kStagedPitch = kBlockOutputs + kBlockOutputs / 32 + 1;
using StagedSums = float[kProductRows][kStagedPitch];  // [row][output + output / 32]

/// Puts the sums of this warp there.
__device__ inline void stage(const Sums<kWarpColumns>& sum, StagedSums& staged) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = threadIdx.x % 32;
  const int g = lane / 4, q = lane % 4;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    float* const to = &staged[8 * j + g][warp * (kGroupOutputs + 1) + q * kLaneOutputs];
#pragma unroll
    for (int i = 0; i < kWarpColumns; ++i) {
      to[2 * i] = sum[i][2 * j];
      to[2 * i + 1] = sum[i][2 * j + 1];
    }
  }
}

/// An element in the low bits of a word, and back.
template <class Y>
__device__ uint32_t bits_of(const Y* y) {
  if constexpr (sizeof(Y) == 4) return *reinterpret_cast<const uint32_t*>(y);
  return *reinterpret_cast<const uint16_t*>(y);
}
template <class Y>
__device__ Y from_bits(uint32_t bits) {
  if constexpr (sizeof(Y) == 4) {
    return __uint_as_float(bits);
  } else {
    const auto low = static_cast<uint16_t>(bits);
    return reinterpret_cast<const Y&>(low);
  }
}

/// The elements of a row of y that a lane loads: whole vectors, and one element outside of them.
struct OldOutputs {
  uint4 vectors[2];  // f32 needs both, f16 and bf16 the first
  uint32_t single;
};

/// Up to 256 outputs of a row of y, for one warp. Vectors begin at multiples of 16 bytes. Lanes 0
/// to 15 have the single elements before the first vector, lanes 16 to 31 those behind the last
/// one.
template <class Y>
struct RowOutputs {
  static constexpr int kEach = 16 / int{sizeof(Y)};  // elements of a vector
  static constexpr int kPasses = kBlockOutputs / (32 * kEach);
  Y* y;
  int head;         // single elements before the first vector
  int num_vectors;  // of the row
  int single;       // index of this lane's single element, or -1

  __device__ RowOutputs(Y* y, int num) : y(y) {
    const auto past = static_cast<int>(reinterpret_cast<uintptr_t>(y) % 16);
    head = min(num, (16 - past) % 16 / int{sizeof(Y)});
    num_vectors = (num - head) / kEach;
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int behind = head + num_vectors * kEach + lane - 16;
    single = lane < head ? lane : lane >= 16 && behind < num ? behind : -1;
  }
  __device__ uint4* vector(int pass, int lane) const {
    return reinterpret_cast<uint4*>(y + head) + pass * 32 + lane;
  }

  __device__ void load(OldOutputs& old) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      if (i * 32 + lane < num_vectors) old.vectors[i] = *vector(i, lane);
    }
    if (single >= 0) old.single = bits_of(y + single);
  }

  /// sums: [output + output / 32] of this row, as in StagedSums.
  __device__ void store(const OldOutputs& old, float factor, bool accumulate,
                        const float* sums) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const auto sum_of = [&](int n) { return sums[n + n / 32]; };
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      if (i * 32 + lane >= num_vectors) continue;
      uint4 v = old.vectors[i];
      auto* const values = reinterpret_cast<Y*>(&v);
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        values[k] =
            finish(values[k], factor, sum_of(head + (i * 32 + lane) * kEach + k), accumulate);
      }
      *vector(i, lane) = v;
    }
    if (single >= 0)
      y[single] = finish(from_bits<Y>(old.single), factor, sum_of(single), accumulate);
  }
};

}  // namespace heddle::cuda::lora
