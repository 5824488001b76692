#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cuda/memory_cuda.h"
#include "cuda/warp.h"

#include "core/math.h"
#include "ops/norm/rms_norm_kernels.h"
#include "ops/norm/rms_norm_vector_cuda.h"
#include "ops/norm/select_kernel.h"

namespace heddle::cuda::norm {

/// Where a lane's vectors of one row, or of a chunk of it, begin, and what is left there. For what
/// is no row, nothing is. Index counts the elements of a row: int, or int64_t where they may be
/// more.
template <class T, class I>
struct LaneOfRow {
  using Index = I;
  std::byte* output;
  T* residual;  // where there is one
  const T* input;
  Index first;  // element of the row that the lane begins with
  Index left;   // elements from there on to the end of the chunk; none: 0 or less
  Index step;   // elements from one vector of the lane to the next
};

/// Of the chunk [begin, end) of a row.
template <class T, class Index>
__device__ LaneOfRow<T, Index> lane_of_row(const RmsNormParams& p, uint32_t row, Index begin,
                                           Index end, int lane, int lanes) {
  const bool is_row = row < p.num_rows;
  const uint32_t known_row = is_row ? row : 0;
  int64_t output = 0, residual = 0, input = 0;  // bytes
  if (p.sizes[2] == p.num_rows) {
    output = known_row * p.output.strides[2];
    residual = known_row * p.residual.strides[2];
    input = known_row * p.input.strides[2];
  } else {
    const uint32_t outer = known_row / p.sizes[2], k = known_row - outer * p.sizes[2];
    const uint32_t i = outer / p.sizes[1], j = outer - i * p.sizes[1];
    const auto offset = [&](const int64_t(&strides)[kRmsNormAxes]) {
      return i * strides[0] + j * strides[1] + k * strides[2];
    };
    output = offset(p.output.strides);
    residual = offset(p.residual.strides);
    input = offset(p.input.strides);
  }
  const Index first = begin + lane * kVectorElements;
  return {.output = p.output.data + output + first * p.output_bytes(sizeof(T)),
          .residual = reinterpret_cast<T*>(p.residual.data + residual) + first,
          .input = reinterpret_cast<const T*>(p.input.data + input) + first,
          .first = first,
          .left = is_row ? end - first : 0,
          .step = static_cast<Index>(lanes) * kVectorElements};
}

/// Pieces k * lanes from vector `base` on of a row.
template <bool kVectors, int kCount, class T, class Index>
__device__ void load_pieces(const T* row, const LaneOfRow<T, Index>& lane, Index base,
                            LaneVector<T> (&x)[kCount]) {
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const Index at = base + k * lane.step;
    x[k] = load_piece<kVectors>(row + at, lane.left - at);
  }
}

/// residual += x, rounded; x becomes what is stored.
template <bool kVectors, int kCount, class T, class Index>
__device__ void add_to_residual(const LaneOfRow<T, Index>& lane, Index base,
                                const LaneVector<T> (&residual)[kCount],
                                LaneVector<T> (&x)[kCount]) {
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    float sum[kVectorElements], addend[kVectorElements];
    widen_vector(residual[k], sum);
    widen_vector(x[k], addend);
#pragma unroll
    for (int i = 0; i < kVectorElements; ++i) sum[i] += addend[i];
    x[k] = narrow_piece<T>(sum);
    const Index at = base + k * lane.step;
    store_piece<kVectors>(lane.residual + at, x[k], lane.left - at);
  }
}

template <int kCount, class T>
__device__ void add_squares(const LaneVector<T> (&x)[kCount], float (&sums)[4]) {
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    float values[kVectorElements];
    widen_vector(x[k], values);
#pragma unroll
    for (int i = 0; i < kVectorElements; ++i) sums[i % 4] = fmaf(values[i], values[i], sums[i % 4]);
  }
}
__device__ inline float total(const float (&sums)[4]) {
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

struct Plus {
  __device__ float operator()(float a, float b) const { return a + b; }
};
/// Of sizes that are no NaN.
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// One value of each warp.
struct alignas(16) LanePartials {
  float values[kMaxWarps];
};

/// op over the lanes of a row, in all of them; op is commutative, and 0 neutral. Lanes of several
/// rows share a warp, or kOneRow: the block has one row, and `partials` is used once.
template <bool kOneRow, class Op>
__device__ inline float reduce_row(float v, int lanes, LanePartials& partials, Op op) {
  if constexpr (kOneRow && std::is_same_v<Op, Larger>) {  // sizes, whose bits are in their order
    v = __uint_as_float(__reduce_max_sync(kAllLanes, __float_as_uint(v)));
  } else {
#pragma unroll
    for (int step = kWarpSize / 2; step > 0; step /= 2) {
      if (kOneRow || step < lanes) v = op(v, __shfl_xor_sync(kAllLanes, v, step));
    }
  }
  if constexpr (kOneRow) {
    const int num_warps = lanes / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    if (lane == 0) partials.values[warp] = v;
    if (warp == 0 && lane >= num_warps && lane < kMaxWarps) partials.values[lane] = 0.0f;
    __syncthreads();
    v = 0.0f;
    for (int first = 0; first < num_warps; first += kGroup) {
      const float4 a = *reinterpret_cast<const float4*>(partials.values + first);
      const float4 b = *reinterpret_cast<const float4*>(partials.values + first + 4);
      v = op(v, op(op(op(a.x, b.x), op(a.z, b.z)), op(op(a.y, b.y), op(a.w, b.w))));
    }
  }
  return v;
}

/// The weights of a lane. bring_near() has them brought into the L2 cache, which may be done before
/// the kernel in front has ended. fetch() loads those of T; those of f32 that rows of 16 bits have
/// are only brought near.
template <bool kVectors, int kCount, class T, class Index>
class LaneWeights {
 public:
  __device__ LaneWeights(const RmsNormParams& p, const LaneOfRow<T, Index>& lane, Index base)
      : p_(p), lane_(lane), base_(base) {}
  __device__ void bring_near() const {
    const int64_t element = is_f32() ? 4 : 2;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const Index at = base_ + k * lane_.step;
      if (at < lane_.left) prefetch(p_.weight + (lane_.first + at) * element);
    }
  }
  __device__ void fetch() {
    if (!is_ahead()) return bring_near();
    load_pieces<kVectors>(reinterpret_cast<const T*>(p_.weight) + lane_.first, lane_, base_,
                          ahead_);
  }
  /// weight_offset + weight of vector k.
  __device__ void read(int k, float (&factors)[kVectorElements]) const {
    if (is_ahead()) {
      widen_vector(ahead_[k], factors);
    } else {
      const Index at = base_ + k * lane_.step;
      widen_vector(load_piece<kVectors>(f32_at(at), lane_.left - at), factors);
    }
#pragma unroll
    for (float& factor : factors) factor += p_.weight_offset;
  }

 private:
  [[nodiscard]] __device__ bool is_f32() const { return sizeof(T) == 4 || p_.is_weight_f32; }
  [[nodiscard]] __device__ bool is_ahead() const { return sizeof(T) == 4 || !is_f32(); }
  [[nodiscard]] __device__ const float* f32_at(Index at) const {
    return reinterpret_cast<const float*>(p_.weight) + lane_.first + at;
  }

  const RmsNormParams& p_;
  const LaneOfRow<T, Index>& lane_;
  Index base_;
  LaneVector<T> ahead_[kCount];
};

/// (x * rstd) * (weight_offset + weight) of vector k.
template <class Weights, class T>
__device__ void normalise(const LaneVector<T>& x, const Weights& weights, int k, float rstd,
                          float (&values)[kVectorElements]) {
  float factors[kVectorElements];
  weights.read(k, factors);
  widen_vector(x, values);
#pragma unroll
  for (int i = 0; i < kVectorElements; ++i) values[i] = values[i] * rstd * factors[i];
}

/// Stores one vector of the output, from element `at` of the lane on.
template <bool kVectors, class O, class T, class Index>
__device__ void store_rounded(const LaneOfRow<T, Index>& lane, Index at,
                              const float (&values)[kVectorElements]) {
  store_piece<kVectors>(reinterpret_cast<O*>(lane.output) + at, narrow_piece<O>(values),
                        lane.left - at);
}

template <bool kVectors, int kCount, class Weights, class T, class Index>
__device__ void write(const RmsNormParams& p, const LaneOfRow<T, Index>& lane, Index base,
                      const LaneVector<T> (&x)[kCount], const Weights& weights, float rstd) {
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const Index at = base + k * lane.step;
    float values[kVectorElements];
    normalise(x[k], weights, k, rstd, values);
    if (sizeof(T) == 2 || p.output_type == RmsNormOutput::kAsInput) {
      store_rounded<kVectors, T>(lane, at, values);
    } else if (p.output_type == RmsNormOutput::kFloat16) {
      store_rounded<kVectors, __half>(lane, at, values);
    } else {
      store_rounded<kVectors, __nv_bfloat16>(lane, at, values);
    }
  }
}

/// Normalised vectors, for an output of f8e4m3.
template <int kCount, class T>
struct Normalised {
  float values[kCount][kVectorElements];

  template <class Weights>
  __device__ Normalised(const LaneVector<T> (&x)[kCount], const Weights& weights, float rstd) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) normalise(x[k], weights, k, rstd, values[k]);
  }
  /// The larger of `largest` and of all sizes that are no NaN.
  [[nodiscard]] __device__ float largest(float largest) const {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
#pragma unroll
      for (const float value : values[k]) largest = fmaxf(largest, fabsf(value));
    }
    return largest;
  }
  template <bool kVectors, class Index>
  __device__ void write(const LaneOfRow<T, Index>& lane, Index base, float inverse_scale) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const Index at = base + k * lane.step;
#pragma unroll
      for (float& value : values[k]) value *= inverse_scale;
      store_piece_e4m3<kVectors>(reinterpret_cast<uint8_t*>(lane.output) + at, values[k],
                                 lane.left - at);
    }
  }
};

__device__ inline float rstd_of(const RmsNormParams& p, float sum_of_squares) {
  return rsqrtf(sum_of_squares * p.inverse_width + p.epsilon);
}

/// 1 / scale of a row whose largest size is `largest`; is_writer: this thread writes the scale.
__device__ inline float inverse_of_largest(const RmsNormParams& p, uint32_t row, float largest,
                                           bool is_writer) {
  const float scale = fmaxf(largest / kMaxFp8, kMinFp8Scale);
  if (is_writer) p.scale.per_row[row] = scale;
  return 1.0f / scale;
}

}  // namespace heddle::cuda::norm
