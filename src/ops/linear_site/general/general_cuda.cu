#include "cuda/begin_early_cuda.h"
#include "cuda/convert_cuda.h"
#include "cuda/early_launch.h"

#include "core/math.h"
#include "ops/linear_site/general/general_params.h"
#include "ops/lora_device/shrink_tile_cuda.h"

namespace heddle::cuda::linear_site {
namespace {

// The product of a site where the kernel of decode/ does not fit: any compute capability, address
// and stride. A block has 16 outputs and up to 64 rows; weights go from memory to registers once.
//
//   features   | 64 of warp 0 | 64 of warp 1 | ... | 64 of warp 7 | 64 of warp 0 | ...
//
// A lane loads as for shrink of LoRA (ops/lora_device/shrink_tile_cuda.h). Each warp sums its
// features in order; then the sums of the eight warps are added in order.

constexpr int kThreads = lora::kBlockThreads, kWarps = lora::kBlockWarps;
constexpr int kOutputs = 16, kRowTiles = 8, kRows = kRowTiles * lora::kProductTileRows;
constexpr int kWarpFeatures = 64, kChunk = kWarps * kWarpFeatures;
constexpr int kSumStride = kOutputs + 4;  // floats from row to row

/// Eight features of a row, zeros behind its end.
template <class T>
__device__ uint4 load_8(bool has_vectors, const T* row, int64_t feature, int64_t in_features) {
  const auto left = static_cast<int>(min(int64_t{8}, in_features - feature));
  if (row == nullptr || left <= 0) return {0, 0, 0, 0};
  if (has_vectors && left == 8) return *reinterpret_cast<const uint4*>(row + feature);
  return lora::gather_8(row + feature, 1, left);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    general_kernel(const __grid_constant__ GeneralParams p) {
  __shared__ float sums[kWarps][kRows * kSumStride];
  begin_early(p);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int g = lane / 4, q = lane % 4;
  const int64_t first_output = int64_t{blockIdx.x} * kOutputs;
  const int64_t first_row = int64_t{blockIdx.y} * kRows;
  const auto row_of = [](const void* first, int64_t stride, int64_t index, int64_t count) {
    return index < count ? static_cast<const T*>(first) + index * stride : nullptr;
  };
  const T* const low = row_of(p.weight, p.weight_stride, first_output + g, p.width);
  const T* const high = row_of(p.weight, p.weight_stride, first_output + g + 8, p.width);
  float sum[kRowTiles][4] = {};
  for (int64_t feature = warp * kWarpFeatures + q * 8; feature - q * 8 < p.in_features;
       feature += kChunk) {
    uint4 a[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      a[i][0] = load_8(p.has_weight_vectors, low, feature + 32 * i, p.in_features);
      a[i][1] = load_8(p.has_weight_vectors, high, feature + 32 * i, p.in_features);
    }
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      const int64_t row = first_row + t * lora::kProductTileRows + g;
      if (row - g >= p.num_rows) break;
      const T* const x = row_of(p.x, p.x_stride, row, p.num_rows);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        lora::multiply_block<T>(
            a[i][0], a[i][1], load_8(p.has_x_vectors, x, feature + 32 * i, p.in_features), sum[t]);
      }
    }
  }
#pragma unroll
  for (int t = 0; t < kRowTiles; ++t) {
    float* const to = sums[warp] + (t * lora::kProductTileRows + 2 * q) * kSumStride + g;
    to[0] = sum[t][0], to[kSumStride] = sum[t][1];
    to[8] = sum[t][2], to[kSumStride + 8] = sum[t][3];
  }
  __syncthreads();
  const auto rows = static_cast<int>(min(int64_t{kRows}, p.num_rows - first_row));
  for (int i = static_cast<int>(threadIdx.x); i < rows * kOutputs; i += kThreads) {
    const int row = i / kOutputs, output = i % kOutputs;
    if (first_output + output >= p.width) continue;
    float v = sums[0][row * kSumStride + output];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) v += sums[w][row * kSumStride + output];
    if (p.bias != nullptr) v += widen(static_cast<const T*>(p.bias)[first_output + output]);
    const int64_t at = (first_row + row) * p.y_stride + first_output + output;
    if (p.y_dtype == DType::kFloat32) {
      static_cast<float*>(p.y)[at] = v;
    } else {
      static_cast<T*>(p.y)[at] = narrow<T>(v);
    }
  }
}

template <class To, class From>
__device__ To convert(From v) {
  if constexpr (std::is_same_v<To, From>) {
    return v;
  } else {
    return narrow<To>(v);
  }
}

// to[r][i] = From as To. A thread an element, any grid of kThreads threads a block.
template <class To, class From>
__global__ void __launch_bounds__(kThreads) copy_kernel(const __grid_constant__ RowCopy p) {
  begin_early(p);
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < p.num_rows * p.width;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t row = i / p.width, column = i - row * p.width;
    static_cast<To*>(p.to)[row * p.to_stride + column] =
        convert<To>(static_cast<const From*>(p.from)[row * p.from_stride + column]);
  }
}

template <class To, class From>
void launch_copy(const ExecContext& ctx, const RowCopy& p) {
  constexpr int64_t kMaxBlocks = 1024;
  const int64_t blocks = std::min(kMaxBlocks, ceil_div(p.num_rows * p.width, int64_t{kThreads}));
  if (blocks == 0) return;
  launch_early<copy_kernel<To, From>>(ctx, dim3(static_cast<unsigned>(blocks)), kThreads, p);
}

template <class T>
void launch_product(const ExecContext& ctx, const GeneralParams& p) {
  if (p.width == 0 || p.num_rows == 0) return;
  const dim3 grid(static_cast<unsigned>(ceil_div(p.width, int64_t{kOutputs})),
                  static_cast<unsigned>(ceil_div(p.num_rows, int64_t{kRows})));
  launch_early<general_kernel<T>>(ctx, grid, kThreads, p);
}

}  // namespace

template <>
void launch_general<bfloat16>(const ExecContext& ctx, const GeneralParams& p) {
  launch_product<__nv_bfloat16>(ctx, p);
}
template <>
void launch_general<half>(const ExecContext& ctx, const GeneralParams& p) {
  launch_product<__half>(ctx, p);
}

void copy_rows(const ExecContext& ctx, const RowCopy& p) {
  launch_copy<uint16_t, uint16_t>(ctx, p);
}
template <>
void narrow_rows<bfloat16>(const ExecContext& ctx, const RowCopy& p) {
  launch_copy<__nv_bfloat16, float>(ctx, p);
}
template <>
void narrow_rows<half>(const ExecContext& ctx, const RowCopy& p) {
  launch_copy<__half, float>(ctx, p);
}

}  // namespace heddle::cuda::linear_site
