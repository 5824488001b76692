#include <algorithm>
#include <type_traits>

#include "cuda/check.h"
#include "cuda/convert_cuda.h"

#include "ops/norm/rms_norm_kernels.h"

// A row is cut into pieces of 8 elements, and piece c belongs to lane c mod n of the n lanes of the row. n follows from the width
// alone, and so does the order of the sums, whatever the dtypes and the alignment are: each lane adds the squares of its pieces in
// four sums (element i to sum i mod 4), these as (s0 + s2) + (s1 + s3), and lanes are added as trees.

namespace heddle::cuda {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kWarp = 32, kMaxLanes = 1024;
constexpr int kPiece = 8;   // elements
constexpr int kPieces = 4;  // of a lane that are in registers at a time
constexpr int kBlock = 256, kMaxWarps = kMaxLanes / kWarp;

/// Most lanes whose registers hold a row; f32 needs more of them.
template <class T>
constexpr int kRowLanes = sizeof(T) == 2 ? kMaxLanes : kMaxLanes / 2;

/// The widest rows that one piece a lane of one warp, four of one warp, and four of one block hold.
constexpr int64_t kOnePieceWidth = kWarp * kPiece;
constexpr int64_t kWarpWidth = kWarp * kPieces * kPiece;
template <class T>
constexpr int64_t kBlockWidth = kRowLanes<T>* kPieces* kPiece;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Lanes of a row.
constexpr int lanes_of(int64_t width) {
  const int64_t pieces = ceil_div(width, kPiece);
  if (pieces <= 8) return 8;
  if (pieces <= 16) return 16;
  if (pieces <= kWarp * kPieces) return kWarp;
  return static_cast<int>(std::min<int64_t>(kMaxLanes, ceil_div(pieces, kWarp * kPieces) * kWarp));
}
static_assert(lanes_of(1) == 8 && lanes_of(64) == 8 && lanes_of(128) == 16 && lanes_of(256) == 32);
static_assert(lanes_of(kWarpWidth) == 32 && lanes_of(kWarpWidth + 1) == 64);
static_assert(lanes_of(4096) == 128 && lanes_of(kBlockWidth<__half>) == 1024 &&
              lanes_of(262144) == 1024);

/// The bits of 8 elements.
template <class T>
struct Piece {
  uint32_t words[kPiece * sizeof(T) / 4];
};
template <class T>
constexpr int kWords = kPiece * sizeof(T) / 4;

template <class T>
__device__ void widen_piece(const Piece<T>& piece, float (&values)[kPiece]) {
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < kPiece; ++i) values[i] = __uint_as_float(piece.words[i]);
  } else {
#pragma unroll
    for (int w = 0; w < kWords<T>; ++w) {
      const float2 two = widen_two<T>(piece.words[w]);
      values[2 * w] = two.x;
      values[2 * w + 1] = two.y;
    }
  }
}
template <class T>
__device__ Piece<T> narrow_piece(const float (&values)[kPiece]) {
  Piece<T> piece;
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < kPiece; ++i) piece.words[i] = __float_as_uint(values[i]);
  } else {
#pragma unroll
    for (int w = 0; w < kWords<T>; ++w) {
      piece.words[w] = narrow_two<T>({values[2 * w], values[2 * w + 1]});
    }
  }
  return piece;
}

/// What holds the bits of one element.
template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;

/// The first `count` elements at p, any number; zeros behind them. kVectors: p is a multiple of 16 bytes.
template <bool kVectors, class T, class Index>
__device__ Piece<T> load_piece(const T* p, Index count) {
  Piece<T> piece{};
  if (kVectors && count >= kPiece) {
#pragma unroll
    for (int w = 0; w < kWords<T>; w += 4) {
      const uint4 four = reinterpret_cast<const uint4*>(p)[w / 4];
      piece.words[w] = four.x;
      piece.words[w + 1] = four.y;
      piece.words[w + 2] = four.z;
      piece.words[w + 3] = four.w;
    }
  } else {
    constexpr int kPerWord = 4 / sizeof(T);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      const uint32_t bits = i < count ? reinterpret_cast<const Bits<T>*>(p)[i] : 0;
      piece.words[i / kPerWord] |= bits << (16 * (i % kPerWord));
    }
  }
  return piece;
}
template <bool kVectors, class T, class Index>
__device__ void store_piece(T* p, const Piece<T>& piece, Index count) {
  if (kVectors && count >= kPiece) {
#pragma unroll
    for (int w = 0; w < kWords<T>; w += 4) {
      reinterpret_cast<uint4*>(p)[w / 4] = {piece.words[w], piece.words[w + 1], piece.words[w + 2],
                                            piece.words[w + 3]};
    }
  } else {
    constexpr int kPerWord = 4 / sizeof(T);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      if (i < count) {
        reinterpret_cast<Bits<T>*>(p)[i] =
            static_cast<Bits<T>>(piece.words[i / kPerWord] >> (16 * (i % kPerWord)));
      }
    }
  }
}
/// The same of e4m3, where kVectors asks for a multiple of 8 bytes only.
template <bool kVectors, class Index>
__device__ void store_piece_e4m3(uint8_t* p, const float (&values)[kPiece], Index count) {
  uint32_t words[2];
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    const float* four = values + 4 * w;
    words[w] = narrow_two_e4m3(four[0], four[1]) | narrow_two_e4m3(four[2], four[3]) << 16;
  }
  if (kVectors && count >= kPiece) {
    *reinterpret_cast<uint2*>(p) = {words[0], words[1]};
  } else {
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      if (i < count) p[i] = static_cast<uint8_t>(words[i / 4] >> (8 * (i % 4)));
    }
  }
}

/// Where a lane's pieces of one row begin, and what is left of the row there. For what is no row, nothing is.
/// Index counts the elements of a row: int, or int64_t where they may be more.
template <class T, class I>
struct LaneOfRow {
  using Index = I;
  std::byte* output;
  T* residual;  // nullptr: none
  const T* input;
  Index left;  // elements from the lane's first piece on; none: 0 or less
  Index step;  // elements from one piece of the lane to the next
};

template <class T, class Index>
__device__ LaneOfRow<T, Index> lane_of_row(const RmsNormParams& p, uint32_t row, int lane,
                                           int lanes) {
  const bool is_row = row < p.num_rows;
  uint32_t i = 0, j = 0, k = is_row ? row : 0;
  if (p.sizes[2] != p.num_rows) {
    const uint32_t outer = k / p.sizes[2];
    k -= outer * p.sizes[2];
    i = outer / p.sizes[1];
    j = outer - i * p.sizes[1];
  }
  const auto begin = [&](const RmsNormTensor& t) {
    return t.data + i * t.strides[0] + j * t.strides[1] + k * t.strides[2];
  };
  const int first = lane * kPiece;
  return {.output = begin(p.output) + first * (p.is_output_fp8 ? 1 : sizeof(T)),
          .residual = p.residual.data == nullptr ? nullptr
                                                 : reinterpret_cast<T*>(begin(p.residual)) + first,
          .input = reinterpret_cast<const T*>(begin(p.input)) + first,
          .left = is_row ? static_cast<Index>(p.width) - first : 0,
          .step = static_cast<Index>(lanes) * kPiece};
}

/// Pieces k * lanes from piece `base` on of a row, input or residual.
template <bool kVectors, int kCount, class T, class Index>
__device__ void load_pieces(const T* row, const LaneOfRow<T, Index>& lane, Index base,
                            Piece<T> (&x)[kCount]) {
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const Index at = base + k * lane.step;
    x[k] = load_piece<kVectors>(row + at, lane.left - at);
  }
}

/// What the norm is taken of; a residual takes the input in and is written.
template <bool kVectors, int kCount, class T, class Index>
__device__ void take_in(const LaneOfRow<T, Index>& lane, Index base, Piece<T> (&x)[kCount]) {
  load_pieces<kVectors>(lane.input, lane, base, x);
  if (lane.residual == nullptr) return;
  Piece<T> residual[kCount];
  load_pieces<kVectors>(static_cast<const T*>(lane.residual), lane, base, residual);
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    float sum[kPiece], addend[kPiece];
    widen_piece(residual[k], sum);
    widen_piece(x[k], addend);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) sum[i] += addend[i];
    x[k] = narrow_piece<T>(sum);
    const Index at = base + k * lane.step;
    store_piece<kVectors>(lane.residual + at, x[k], lane.left - at);
  }
}

template <int kCount, class T>
__device__ void add_squares(const Piece<T> (&x)[kCount], float (&sums)[4]) {
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    float values[kPiece];
    widen_piece(x[k], values);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) sums[i % 4] = fmaf(values[i], values[i], sums[i % 4]);
  }
}

/// op over the lanes of a row, in all of them; op is commutative. Lanes of several rows share a warp, or kOneRow: the block has one row,
/// and `partials` is used once.
template <bool kOneRow, class Op>
__device__ float reduce_row(float v, int lanes, float (&partials)[kMaxWarps], Op op) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    if (kOneRow || step < lanes) v = op(v, __shfl_xor_sync(kAll, v, step));
  }
  if constexpr (kOneRow) {
    const int num_warps = lanes / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    if (lane == 0) partials[warp] = v;
    if (warp == 0 && lane >= num_warps) partials[lane] = 0.0f;  // neutral for sums and sizes
    __syncthreads();
    const int span = 1 << (32 - __clz(num_warps - 1));  // a power of two of at least num_warps
    v = partials[lane & (span - 1)];
    for (int step = span / 2; step > 0; step /= 2) v = op(v, __shfl_xor_sync(kAll, v, step));
  }
  return v;
}

/// The weights of a lane. Those of T are loaded ahead, if they fit into registers; of f32 they are only brought nearer.
template <bool kVectors, int kCount, class T, class Index>
class LaneWeights {
 public:
  __device__ LaneWeights(const RmsNormParams& p, const LaneOfRow<T, Index>& lane, int first,
                         Index base)
      : p_(p), lane_(lane), base_(base), first_(first) {
    if (is_ahead()) {
      load_pieces<kVectors>(reinterpret_cast<const T*>(p.weight) + first, lane, base, ahead_);
      return;
    }
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const Index at = base + k * lane.step;
      if (at < lane.left) asm volatile("prefetch.global.L2 [%0];" ::"l"(f32_at(at)));
    }
  }
  /// weight_offset + weight of piece k.
  __device__ void read(int k, float (&factors)[kPiece]) const {
    if (is_ahead()) {
      widen_piece(ahead_[k], factors);
    } else {
      const Index at = base_ + k * lane_.step;
      widen_piece(load_piece<kVectors>(f32_at(at), lane_.left - at), factors);
    }
#pragma unroll
    for (float& factor : factors) factor += p_.weight_offset;
  }

 private:
  [[nodiscard]] __device__ bool is_ahead() const { return sizeof(T) == 2 && !p_.is_weight_f32; }
  [[nodiscard]] __device__ const float* f32_at(Index at) const {
    return reinterpret_cast<const float*>(p_.weight) + first_ + at;
  }

  const RmsNormParams& p_;
  const LaneOfRow<T, Index>& lane_;
  Index base_;
  int first_;
  Piece<T> ahead_[kCount];
};

/// (x * rstd) * (weight_offset + weight) of piece k.
template <class Weights, class T>
__device__ void normalise(const Piece<T>& x, const Weights& weights, int k, float rstd,
                          float (&values)[kPiece]) {
  float factors[kPiece];
  weights.read(k, factors);
  widen_piece(x, values);
#pragma unroll
  for (int i = 0; i < kPiece; ++i) values[i] = values[i] * rstd * factors[i];
}

/// The larger of `largest` and of all sizes of normalised elements that are no NaN.
template <int kCount, class Weights, class T>
__device__ float largest_of(const Piece<T> (&x)[kCount], const Weights& weights, float rstd,
                            float largest) {
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    float values[kPiece];
    normalise(x[k], weights, k, rstd, values);
#pragma unroll
    for (const float value : values) largest = fmaxf(largest, fabsf(value));
  }
  return largest;
}

template <bool kVectors, int kCount, class Weights, class T, class Index>
__device__ void write(const RmsNormParams& p, const LaneOfRow<T, Index>& lane, Index base,
                      const Piece<T> (&x)[kCount], const Weights& weights, float rstd,
                      float inverse_scale) {
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const Index at = base + k * lane.step;
    float values[kPiece];
    normalise(x[k], weights, k, rstd, values);
    if (p.is_output_fp8) {
#pragma unroll
      for (float& value : values) value *= inverse_scale;
      store_piece_e4m3<kVectors>(reinterpret_cast<uint8_t*>(lane.output) + at, values,
                                 lane.left - at);
    } else {
      store_piece<kVectors>(reinterpret_cast<T*>(lane.output) + at, narrow_piece<T>(values),
                            lane.left - at);
    }
  }
}

__device__ float rstd_of(const RmsNormParams& p, float sum_of_squares) {
  return 1.0f / sqrtf(sum_of_squares / static_cast<float>(p.width) + p.epsilon);
}

/// 1 / scale of a row whose largest size is `largest`; is_writer: this thread writes the scale.
__device__ float inverse_of_largest(const RmsNormParams& p, uint32_t row, float largest,
                                    bool is_writer) {
  const float scale = fmaxf(largest / kMaxFp8, kMinFp8Scale);
  if (is_writer) p.scale.per_row[row] = scale;
  return 1.0f / scale;
}

struct Plus {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Rows whose elements all stay in registers, so that they are read once: kCount pieces a lane.
// kOneRow: grid num_rows, block lanes_of(width). Else a row has 8, 16 or 32 lanes; block (lanes, rows of the block), grid
// ceil(num_rows / rows).
template <class T, bool kVectors, int kCount, bool kOneRow>
__global__ void __launch_bounds__(kOneRow ? kRowLanes<T> : kBlock,
                                  kOneRow || sizeof(T) == 4 ? 1 : 4)
    rms_norm_kernel(const __grid_constant__ RmsNormParams p) {
  __shared__ float partials[2][kMaxWarps];
  const uint32_t row = kOneRow ? blockIdx.x : blockIdx.x * blockDim.y + threadIdx.y;
  const int lanes = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const auto lane = lane_of_row<T, int>(p, row, thread, lanes);
  Piece<T> x[kCount];
  take_in<kVectors>(lane, 0, x);
  const LaneWeights<kVectors, kCount, T, int> weights(p, lane, thread * kPiece, 0);
  float inverse_scale = p.scale.fixed != nullptr ? 1.0f / *p.scale.fixed : 1.0f;

  float sums[4] = {};
  add_squares(x, sums);
  const float sum = (sums[0] + sums[2]) + (sums[1] + sums[3]);
  const float rstd = rstd_of(p, reduce_row<kOneRow>(sum, lanes, partials[0], Plus()));
  if (p.scale.per_row != nullptr) {
    const float largest =
        reduce_row<kOneRow>(largest_of(x, weights, rstd, 0.0f), lanes, partials[1], Larger());
    inverse_scale =
        inverse_of_largest(p, row, largest, thread == 0 && (kOneRow || row < p.num_rows));
  }
  write<kVectors>(p, lane, 0, x, weights, rstd, inverse_scale);
}

// Rows that are too wide for that: a block of lanes_of(width) goes over its row two times, or three where the row has a scale of its own.
// What it reads again comes from the L2 cache, as long as the rows that are worked on fit into it. Grid num_rows, block lanes_of(width).
template <class T, bool kVectors>
__global__ void __launch_bounds__(kMaxLanes)
    rms_norm_wide_kernel(const __grid_constant__ RmsNormParams p) {
  __shared__ float partials[2][kMaxWarps];
  const int thread = static_cast<int>(threadIdx.x);
  const int lanes = static_cast<int>(blockDim.x);
  const auto lane = lane_of_row<T, int64_t>(p, blockIdx.x, thread, lanes);
  const T* row = lane.residual == nullptr ? lane.input : lane.residual;
  // Of a round, as registers allow; the order of the sums does not depend on it.
  constexpr int kCount = kVectors && sizeof(T) == 2 ? kPieces : kPieces / 2;
  Piece<T> x[kCount];
  // Lanes of the last round may have nothing left.
  const auto for_each_round = [&](auto&& f) {
    for (int64_t base = 0; base < p.width; base += kCount * lane.step) f(base);
  };
  const auto with_weights = [&](int64_t base, auto&& f) {
    const LaneWeights<kVectors, kCount, T, int64_t> weights(p, lane, thread * kPiece, base);
    load_pieces<kVectors>(row, lane, base, x);
    f(weights);
  };

  float sums[4] = {};
  for_each_round([&](int64_t base) {
    take_in<kVectors>(lane, base, x);
    add_squares(x, sums);
  });
  const float sum = (sums[0] + sums[2]) + (sums[1] + sums[3]);
  const float rstd = rstd_of(p, reduce_row<true>(sum, lanes, partials[0], Plus()));
  float inverse_scale = p.scale.fixed != nullptr ? 1.0f / *p.scale.fixed : 1.0f;
  if (p.scale.per_row != nullptr) {
    float largest = 0.0f;
    for_each_round([&](int64_t base) {
      with_weights(base, [&](const auto& w) { largest = largest_of(x, w, rstd, largest); });
    });
    largest = reduce_row<true>(largest, lanes, partials[1], Larger());
    inverse_scale = inverse_of_largest(p, blockIdx.x, largest, thread == 0);
  }
  for_each_round([&](int64_t base) {
    with_weights(base,
                 [&](const auto& w) { write<kVectors>(p, lane, base, x, w, rstd, inverse_scale); });
  });
}

template <class T, bool kVectors>
void launch(const RmsNormParams& p, cudaStream_t stream) {
  const int lanes = lanes_of(p.width), rows = kBlock / lanes;
  const auto several = static_cast<unsigned>(rows > 0 ? ceil_div(p.num_rows, rows) : 0);
  const dim3 block(static_cast<unsigned>(lanes), static_cast<unsigned>(rows));
  if (p.width <= kOnePieceWidth) {
    rms_norm_kernel<T, kVectors, 1, false><<<several, block, 0, stream>>>(p);
  } else if (p.width <= kWarpWidth) {
    rms_norm_kernel<T, kVectors, kPieces, false><<<several, block, 0, stream>>>(p);
  } else if (p.width <= kBlockWidth<T>) {
    rms_norm_kernel<T, kVectors, kPieces, true><<<p.num_rows, lanes, 0, stream>>>(p);
  } else {
    rms_norm_wide_kernel<T, kVectors><<<p.num_rows, lanes, 0, stream>>>(p);
  }
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void rms_norm(const RmsNormParams& params, DType dtype, bool is_aligned, cudaStream_t stream) {
  const auto launch_of = [&](auto type) {
    using T = decltype(type);
    is_aligned ? launch<T, true>(params, stream) : launch<T, false>(params, stream);
  };
  switch (dtype) {
    case DType::kFloat16: return launch_of(__half{});
    case DType::kBFloat16: return launch_of(__nv_bfloat16{});
    default: return launch_of(float{});
  }
}

}  // namespace heddle::cuda
