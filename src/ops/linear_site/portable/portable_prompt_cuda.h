#pragma once

#include "ops/linear_site/portable/portable_tile_cuda.h"
#include "ops/linear_site/prompt/prompt_adapters_cuda.h"

namespace heddle::cuda::linear_site {

// y = x W^T of many rows.
//
//   block   tiles of 128 rows x kOutputs outputs, one after the other
//   stage   64 features of x and W, by asynchronous copies of all threads, also of the tile to come
//   warp    64 rows x a quarter of the outputs; operands of the next 16 features are loaded while
//           those of these are multiplied, also from stage to stage
//
// A sum is one chain of products of 16 features in ascending order, whatever the tile.

/// A tile of a block. A group of row tiles comes with one output tile after the other, so that
/// blocks which run at the same time share x and W in the L2 cache.
struct PromptPlace {
  int output_tile, row_tile;

  __device__ PromptPlace(const PortablePromptParams& p, int index) {
    const int of_group = p.group_tiles * p.num_tiles, group = index / of_group;
    const int first = group * p.group_tiles, local = index - group * of_group;
    const int rows = min(p.group_tiles, p.num_row_tiles - first);
    output_tile = local / rows;
    row_tile = first + local - output_tile * rows;
  }
};

template <int kOutputs>
class PromptLoader {
 public:
  static constexpr uint32_t kStageBytes = portable_prompt_stage_bytes(kOutputs);

  __device__ PromptLoader(const PortablePromptParams& p, uint32_t shared)
      : p_(p), index_(static_cast<int>(blockIdx.x)), shared_(shared) {
    shared_ += swizzled(static_cast<int>(threadIdx.x) / 8, static_cast<int>(threadIdx.x) % 8);
    find();
  }
  /// Starts to load the next stage; an empty group after the last one.
  __device__ void load(int stage) {
    if (is_valid()) {
      const int feature = step_ * kPortableStepFeatures;
      const uint32_t to = shared_ + static_cast<uint32_t>(stage) * kStageBytes;
      x_.load(to, feature, p_.in_features);
      weights_.load(to + kPortableTileRows * kPortableRowBytes, feature, p_.in_features);
      if (++step_ == p_.num_steps) {
        step_ = 0;
        index_ += static_cast<int>(gridDim.x);
        find();
      }
    }
    commit_copies();
  }

 private:
  [[nodiscard]] __device__ bool is_valid() const {
    return index_ < p_.num_tiles * p_.num_row_tiles;
  }
  __device__ void find() {
    if (!is_valid()) return;
    const PromptPlace place(p_, index_);
    const Tile tile(p_, place.output_tile, kOutputs);
    const PortableSlice& slice = p_.slices[tile.slice];
    weights_ =
        RowLoader<kOutputs / 32>(slice.weight, slice.weight_stride, tile.first_output, tile.width);
    const int first_row = place.row_tile * kPortableTileRows;
    x_ = RowLoader<kPortableTileRows / 32>(p_.x, p_.x_stride, first_row, p_.num_rows - first_row);
  }

  const PortablePromptParams& p_;
  int index_, step_ = 0;
  uint32_t shared_;
  RowLoader<kPortableTileRows / 32> x_;
  RowLoader<kOutputs / 32> weights_;
};

/// What lane q of four has of four words w[i] each: word i of lane j becomes word j of lane i.
__device__ inline void transpose_quad(uint32_t (&w)[4]) {
  const int q = static_cast<int>(threadIdx.x % 4);
  // Pairs of words between lanes two apart, then words between neighbours.
  const bool high = (q & 2) != 0, odd = (q & 1) != 0;
  uint32_t a = high ? w[0] : w[2], b = high ? w[1] : w[3];
  a = __shfl_xor_sync(0xffffffffu, a, 2), b = __shfl_xor_sync(0xffffffffu, b, 2);
  if (high) {
    w[0] = a, w[1] = b;
  } else {
    w[2] = a, w[3] = b;
  }
  uint32_t c = odd ? w[0] : w[1], d = odd ? w[2] : w[3];
  c = __shfl_xor_sync(0xffffffffu, c, 1), d = __shfl_xor_sync(0xffffffffu, d, 1);
  if (odd) {
    w[0] = c, w[2] = d;
  } else {
    w[1] = c, w[3] = d;
  }
}

/// What a warp has of a tile: its first row and output there.
struct WarpPart {
  int row, output;
};

/// Adds bias and adapters to the sums of 16 rows.
template <class T, int kSums>
__device__ void add_to_sums(const PortablePromptParams& p, const PortableSlice& slice,
                            const WarpRows& rows, float (&sum)[kSums]) {
  if (slice.bias != nullptr) {
    const T* const bias = static_cast<const T*>(slice.bias) + rows.first_output;
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
      const int output = 8 * (k / 4) + static_cast<int>(threadIdx.x) % 4 * 2 + k % 2;
      sum[k] += output < rows.width ? widen(bias[output]) : 0.0f;
    }
  }
  if (p.adapters.rows == nullptr || rows.num_rows <= 0 || rows.width <= 0) return;
  WarpAdapters<T, kSums> adapters(p.adapters);
  adapters.find_rows(rows, p.num_rows);
  adapters.find_first(rows);
  adapters.load_first(rows, 0);
  adapters.add(rows, sum);
}

/// Writes 32 outputs of the rows g, or g + 8, of a warp, 16 bytes a lane, from output `first` on.
template <class T>
__device__ void store_vectors(const PortableSlice& slice, const WarpRows& rows, int half, int first,
                              uint32_t (&words)[4]) {
  transpose_quad(words);
  // Now eight outputs, those of column q of four.
  const int lane = static_cast<int>(threadIdx.x % 32), row = lane / 4 + 8 * half;
  const int output = first + 8 * (lane % 4);
  if (row >= rows.num_rows || output >= rows.width) return;
  auto* const y = static_cast<T*>(slice.y) + (rows.first_row + row) * slice.y_stride +
                  rows.first_output + output;
  if (output + 8 <= rows.width) {
    *reinterpret_cast<uint4*>(y) = {words[0], words[1], words[2], words[3]};
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const T* const two = reinterpret_cast<const T*>(&words[i]);
    if (output + 2 * i < rows.width) y[2 * i] = two[0];
    if (output + 2 * i + 1 < rows.width) y[2 * i + 1] = two[1];
  }
}

/// Writes y of 16 rows of a warp.
template <class T, int kSums>
__device__ void store_rows(const PortablePromptParams& p, const PortableSlice& slice,
                           const WarpRows& rows, const float (&sum)[kSums]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (slice.has_y_vectors && p.y_dtype != DType::kFloat32) {
#pragma unroll
      for (int first = 0; first < kSums; first += 16) {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int k = first + 4 * i + 2 * half;
          words[i] = narrow_two<T>({sum[k], sum[k + 1]});
        }
        store_vectors<T>(slice, rows, half, 2 * first, words);
      }
      continue;
    }
    const int row = lane / 4 + 8 * half;
    if (row >= rows.num_rows) continue;
    const int64_t at = (rows.first_row + row) * slice.y_stride + rows.first_output;
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
      const int output = 8 * (k / 4) + lane % 4 * 2 + k % 2;
      if (k % 4 / 2 != half || output >= rows.width) continue;
      if (p.y_dtype == DType::kFloat32) {
        static_cast<float*>(slice.y)[at + output] = sum[k];
      } else {
        static_cast<T*>(slice.y)[at + output] = narrow<T>(sum[k]);
      }
    }
  }
}

/// What a warp multiplies at once: 16 features of its rows and outputs.
template <int kRowTiles, int kColumns>
struct Operands {
  uint32_t x[kRowTiles][4], weights[kColumns / 2][4];

  /// rows, outputs: of the lane, as load_matrices() takes them.
  __device__ void load(uint32_t rows, uint32_t outputs) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) load_matrices(x[i], rows + 16 * i * kPortableRowBytes);
#pragma unroll
    for (int j = 0; j < kColumns / 2; ++j) {
      load_matrices(weights[j], outputs + 16 * j * kPortableRowBytes);
    }
  }
  template <class T>
  __device__ void multiply(float (&sum)[kRowTiles][4 * kColumns]) const {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        auto& four = reinterpret_cast<float(&)[4]>(sum[i][4 * j]);
        mma_m16n8k16<T>(four, x[i], weights[j / 2][j % 2 * 2], weights[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
};

template <class T, int kOutputs>
__global__ void __launch_bounds__(kPortableThreads, 1)
    portable_prompt_kernel(const __grid_constant__ PortablePromptParams p) {
  extern __shared__ __align__(128) std::byte shared_bytes[];
  using Loader = PromptLoader<kOutputs>;
  constexpr int kWarpRows = 64, kWarpsOfRows = kPortableTileRows / kWarpRows;
  constexpr int kWarpOutputs = kOutputs / (kPortableWarps / kWarpsOfRows);
  constexpr int kRowTiles = kWarpRows / 16, kColumns = kWarpOutputs / 8;
  constexpr int kProducts = kPortableStepFeatures / 16;
  constexpr int kStages = portable_prompt_stages(kOutputs);
  const uint32_t shared = shared_address(shared_bytes);
  const int index_of_warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);
  const WarpPart warp{index_of_warp % kWarpsOfRows * kWarpRows,
                      index_of_warp / kWarpsOfRows * kWarpOutputs};

  Loader loader(p, shared);
  for (int i = 0; i < kStages; ++i) loader.load(i);
  Operands<kRowTiles, kColumns> operands[2];
  float sum[kRowTiles][4 * kColumns];
  const int num_tiles = p.num_tiles * p.num_row_tiles;
  int stage = 0;
  const uint32_t own_rows = shared + first_rows_at(warp.row);
  const uint32_t own_outputs =
      shared + kPortableTileRows * kPortableRowBytes + second_rows_at(warp.output);
  const auto load = [&](int buffer, int k) {
    const uint32_t of_stage = static_cast<uint32_t>(stage) * Loader::kStageBytes;
    operands[buffer].load(features_at(own_rows + of_stage, k),
                          features_at(own_outputs + of_stage, k));
  };
  wait_for_copies<kStages - 1>();
  __syncthreads();
  for (int index = static_cast<int>(blockIdx.x); index < num_tiles;
       index += static_cast<int>(gridDim.x)) {
    load(0, 0);
#pragma unroll
    for (auto& of_rows : sum) {
#pragma unroll
      for (float& v : of_rows) v = 0.0f;
    }
    for (int step = 0; step < p.num_steps; ++step) {
#pragma unroll
      for (int k = 0; k < kProducts; ++k) {
        const bool is_last = k + 1 == kProducts;
        if (is_last) {
          // All operands of this stage are in registers: the next one, and copies into this one.
          wait_for_copies<kStages - 2>();
          __syncthreads();
          loader.load(stage);
          stage = stage + 1 == kStages ? 0 : stage + 1;
        }
        if (!is_last || step + 1 < p.num_steps) {
          load((k + 1) % 2, (k + 1) % kProducts);
        }
        operands[k % 2].template multiply<T>(sum);
      }
    }
    const PromptPlace place(p, index);
    const Tile tile(p, place.output_tile, kOutputs);
    const PortableSlice& slice = p.slices[tile.slice];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      WarpRows rows;
      rows.slice_index = tile.slice;
      rows.first_row = place.row_tile * kPortableTileRows + warp.row + 16 * i;
      rows.num_rows = min(16, p.num_rows - rows.first_row);
      rows.first_output = tile.first_output + warp.output;
      rows.width = tile.width - warp.output;
      add_to_sums<T>(p, slice, rows, sum[i]);
      store_rows<T>(p, slice, rows, sum[i]);
    }
  }
  wait_for_copies<0>();
}

}  // namespace heddle::cuda::linear_site
