#include "cuda/begin_early_cuda.h"
#include "cuda/early_launch.h"
#include "cuda/memory_cuda.h"

#include "ops/norm/rms_norm_lane_cuda.h"

namespace heddle::cuda::norm {
namespace {

constexpr int kBlock = 256;  // threads of a block that has several rows

/// Threads of a block, and blocks that share a multiprocessor at least, which bounds the registers.
template <int kCount, bool kOneRow>
constexpr int kThreads = !kOneRow         ? kBlock
                         : kCount == kFew ? kFewLanes
                                          : kMaxLanes;
template <class T, bool kVectors, int kCount, bool kOneRow>
constexpr int kBlocks = (kOneRow && kCount == kFew ? 6
                         : kOneRow || !kVectors    ? 2
                                                   : 3) *
                        (sizeof(T) == 2 ? 2 : 1) / 2;

// The vectors of 8 elements of a row, and the lanes that have them: one row of 4096 elements in a
// block of 256 threads, 2 vectors a lane.
//
//   vector   0   1  ...  31    32  ...  63    ...    224 ... 255    256 ...
//   warp    0   0  ...   0     1  ...   1    ...      7 ...   7      0 ...
//   lane    0   1  ...  31     0  ...  31    ...      0 ...  31      0 ...
//
// Rows whose elements all stay in registers, so that they are read once: kCount vectors a lane.
// kOneRow: grid num_rows, block of the row's lanes. Else a row has 8, 16 or 32 lanes, each of kRows
// rows; block (lanes, rows of the block / kRows), grid ceil(num_rows / rows of the block).
template <class T, bool kVectors, int kCount, int kRows, bool kOneRow>
__global__ void __launch_bounds__(kThreads<kCount, kOneRow>, kBlocks<T, kVectors, kCount, kOneRow>)
    rms_norm_kernel(const __grid_constant__ RmsNormParams p) {
  __shared__ LanePartials partials[2];
  trigger_dependents();
  fetch_parameters(p);
  const int lanes = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const int width = static_cast<int>(p.width);
  const uint32_t first_row = kOneRow ? blockIdx.x : blockIdx.x * kRows * blockDim.y + threadIdx.y;
  LaneOfRow<T, int> rows[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    rows[r] = lane_of_row<T, int>(p, first_row + r * blockDim.y, 0, width, thread, lanes);
  }
  const bool has_residual = p.residual.data != nullptr;
  LaneVector<T> x[kRows][kCount], residual[kRows][kCount];
  LaneWeights<kVectors, kCount, T, int> weights(p, rows[0], 0);
  if constexpr (sizeof(T) == 4) weights.bring_near();  // others have no registers for it

  wait_for_predecessor();
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    load_pieces<kVectors>(rows[r].input, rows[r], 0, x[r]);
    if (has_residual) {
      load_pieces<kVectors>(static_cast<const T*>(rows[r].residual), rows[r], 0, residual[r]);
    }
  }
  constexpr bool kHasRoom = kCount < kMany || !kOneRow;  // in registers
  if constexpr (kHasRoom) weights.fetch();
  const float fixed_scale = p.scale.fixed != nullptr ? *p.scale.fixed : 1.0f;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (has_residual) add_to_residual<kVectors>(rows[r], 0, residual[r], x[r]);
  }

  float rstd[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float sums[4] = {};
    add_squares(x[r], sums);
    rstd[r] = rstd_of(p, reduce_row<kOneRow>(total(sums), lanes, partials[0], Plus()));
  }
  if constexpr (!kHasRoom) weights.fetch();
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (p.output_type != RmsNormOutput::kFp8) {
      write<kVectors>(p, rows[r], 0, x[r], weights, rstd[r]);
      continue;
    }
    Normalised<kCount, T> normalised(x[r], weights, rstd[r]);
    float inverse_scale = 1.0f / fixed_scale;
    if (p.scale.per_row != nullptr) {
      const uint32_t row = first_row + r * blockDim.y;
      const float largest =
          reduce_row<kOneRow>(normalised.largest(0.0f), lanes, partials[1], Larger());
      inverse_scale =
          inverse_of_largest(p, row, largest, thread == 0 && (kOneRow || row < p.num_rows));
    }
    normalised.template write<kVectors>(rows[r], 0, inverse_scale);
  }
}

// Rows of any width: a block goes over its row two times, or three where the row has a scale of its
// own, in rounds of kCount vectors a lane. What it reads again comes from the L2 cache, as long as
// the rows that are worked on fit into it. Grid num_rows, block of a chunk's lanes.
template <class T, bool kVectors>
__global__ void __launch_bounds__(kMaxLanes, 2)
    rms_norm_wide_kernel(const __grid_constant__ RmsNormParams p) {
  __shared__ LanePartials partials[2];
  const int lanes = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const bool has_residual = p.residual.data != nullptr;
  // As registers allow; the order of the sums does not depend on it.
  constexpr int kCount = kVectors && sizeof(T) == 2 ? kMany : kFew;
  LaneVector<T> x[kCount], residual[kCount];
  const auto for_each_chunk = [&](auto&& f) {
    int c = 0;
    for (int64_t begin = 0; begin < p.width; begin += p.chunk_width) {
      f(lane_of_row<T, int64_t>(p, blockIdx.x, begin, min(begin + p.chunk_width, p.width), thread,
                                lanes),
        c++);
    }
  };
  // Lanes of the last round may have nothing left.
  const auto for_each_round = [&](auto&& f) {
    for_each_chunk([&](const auto& lane, int) {
      for (int64_t base = 0; base < p.chunk_width; base += kCount * lane.step) {
        LaneWeights<kVectors, kCount, T, int64_t> weights(p, lane, base);
        weights.fetch();
        load_pieces<kVectors>(has_residual ? lane.residual : lane.input, lane, base, x);
        f(lane, base, weights);
      }
    });
  };

  wait_for_predecessor();
  float sum = 0.0f;
  for_each_chunk([&](const auto& lane, int c) {
    float sums[4] = {};
    for (int64_t base = 0; base < p.chunk_width; base += kCount * lane.step) {
      load_pieces<kVectors>(lane.input, lane, base, x);
      if (has_residual) {
        load_pieces<kVectors>(static_cast<const T*>(lane.residual), lane, base, residual);
        add_to_residual<kVectors>(lane, base, residual, x);
      }
      add_squares(x, sums);
    }
    // Each buffer is free again: all threads have passed the barrier after it.
    sum += reduce_row<true>(total(sums), lanes, partials[c % 2], Plus());
  });
  const float rstd = rstd_of(p, sum);
  float inverse_scale = p.scale.fixed != nullptr ? 1.0f / *p.scale.fixed : 1.0f;
  if (p.scale.per_row != nullptr) {
    float largest = 0.0f;
    for_each_round([&](const auto&, int64_t, const auto& weights) {
      largest = Normalised<kCount, T>(x, weights, rstd).largest(largest);
    });
    __syncthreads();  // the last sums are read
    largest = reduce_row<true>(largest, lanes, partials[0], Larger());
    inverse_scale = inverse_of_largest(p, blockIdx.x, largest, thread == 0);
  }
  trigger_dependents();
  for_each_round([&](const auto& lane, int64_t base, const auto& weights) {
    if (p.output_type == RmsNormOutput::kFp8) {
      Normalised<kCount, T>(x, weights, rstd).template write<kVectors>(lane, base, inverse_scale);
    } else {
      write<kVectors>(p, lane, base, x, weights, rstd);
    }
  });
}

/// kKernel has one row a block, or several where rows_of_lane, rows of each of its lanes, is given.
template <auto kKernel>
void run(const RmsNormParams& p, const RmsNormLaunch& launch, int rows_of_lane = 0) {
  const int lanes = cut_of(p.width).lanes;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(p.num_rows);
  config.blockDim = dim3(static_cast<unsigned>(lanes));
  config.stream = launch.stream;
  if (rows_of_lane > 0) {
    // Few rows come sooner to many multiprocessors; a warp is full.
    const int64_t rows = ceil_div(int64_t{p.num_rows}, int64_t{launch.num_sms} * rows_of_lane);
    config.blockDim.y = static_cast<unsigned>(
        std::min<int64_t>(round_up<int64_t>(rows, kWarpSize / lanes), kBlock / lanes));
    config.gridDim.x =
        static_cast<unsigned>(ceil_div(p.num_rows, int64_t{config.blockDim.y} * rows_of_lane));
  }
  launch_early<kKernel>(launch.device, config, p);
}

template <class T>
void launch(const RmsNormParams& p, const RmsNormLaunch& launch) {
  using enum RmsNormKernel;
  constexpr int kRows = sizeof(T) == 2 ? 2 : 1;
  const auto [kernel, has_vectors] = launch.choice;
  if (!has_vectors) {
    if (kernel == kWide) return run<rms_norm_wide_kernel<T, false>>(p, launch);
    return run<rms_norm_kernel<T, false, kMany, 1, false>>(p, launch, 1);
  }
  switch (kernel) {
    case kSeveralRows1: return run<rms_norm_kernel<T, true, 1, kRows, false>>(p, launch, kRows);
    case kSeveralRows4: return run<rms_norm_kernel<T, true, kMany, 1, false>>(p, launch, 1);
    case kOneRow2: return run<rms_norm_kernel<T, true, kFew, 1, true>>(p, launch);
    case kOneRow4: return run<rms_norm_kernel<T, true, kMany, 1, true>>(p, launch);
    case kWide: return run<rms_norm_wide_kernel<T, true>>(p, launch);
  }
}

}  // namespace

void rms_norm(RmsNormParams params, const RmsNormLaunch& how) {
  params.chunk_width = cut_of(params.width).chunk_width;
  switch (how.dtype) {
    case DType::kFloat16: return launch<__half>(params, how);
    case DType::kBFloat16: return launch<__nv_bfloat16>(params, how);
    default: return launch<float>(params, how);
  }
}

}  // namespace heddle::cuda::norm
