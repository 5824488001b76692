#pragma once

#include "ops/linear_site/portable/portable_tile_cuda.h"

namespace heddle::cuda::linear_site {

// y = x W^T of up to 128 rows: once over the weights.
//
//   item    a tile of outputs, all rows, and a range of the features; blocks take items in turn
//   stage   64 features of the tile's weights and of x, by asynchronous copies of all threads; as
//           many stages as shared memory holds are in flight, also of the item to come
//   warp    16 outputs at a time (the side M of a product) times kRowTiles x 8 rows (N), sums in
//           registers; warps share the outputs of a tile, and of many rows the rows, too
//
// A sum is a chain of products of 16 features in ascending order for each range, and ranges are
// added up in order. They depend on the shape of the site alone. Where there are several, each
// block puts its sums to memory, and the last one of a tile adds them up.

/// Where a block is in its items: boxes of 64 features.
struct DecodePlace {
  int item, box, end;

  __device__ DecodePlace(const PortableDecodeParams& p, int first) : item(first) { range(p); }
  [[nodiscard]] __device__ bool is_valid(const PortableDecodeParams& p) const {
    return item < p.num_tiles * p.num_splits;
  }
  __device__ void range(const PortableDecodeParams& p) {
    const int split = item % p.num_splits;
    box = p.num_steps * split / p.num_splits;
    end = p.num_steps * (split + 1) / p.num_splits;
  }
  /// Of the next stage.
  [[nodiscard]] __device__ int num_boxes(const PortableDecodeParams& p) const {
    return min(p.stage_boxes, end - box);
  }
  /// Whether the item ends here.
  __device__ bool advance(const PortableDecodeParams& p, int boxes) {
    box += boxes;
    if (box < end) return false;
    item += static_cast<int>(gridDim.x);
    range(p);
    return true;
  }
};

/// Shared memory of a box: the tile's weights, then x.
[[nodiscard]] __device__ inline uint32_t box_bytes(const PortableDecodeParams& p) {
  return static_cast<uint32_t>((p.tile_outputs + (p.num_rows + 15) / 16 * 16) * kPortableRowBytes);
}

template <int kMaxRows>
class DecodeLoader {
 public:
  __device__ DecodeLoader(const PortableDecodeParams& p, uint32_t shared)
      : p_(p),
        at_(p, static_cast<int>(blockIdx.x)),
        shared_(shared +
                swizzled(static_cast<int>(threadIdx.x) / 8, static_cast<int>(threadIdx.x) % 8)),
        x_(p.x, p.x_stride, 0, p.num_rows) {
    if (at_.is_valid(p_)) find();
  }
  /// Starts to load the next stage; an empty group after the last one.
  __device__ void load(int stage) {
    if (at_.is_valid(p_)) {
      const int boxes = at_.num_boxes(p_);
      const uint32_t bytes = box_bytes(p_);
      uint32_t to = shared_ + static_cast<uint32_t>(stage * p_.stage_boxes) * bytes;
#pragma unroll 1
      for (int i = 0; i < boxes; ++i) {
        const int feature = (at_.box + i) * kPortableStepFeatures;
        weights_.load(to, feature, p_.in_features);
        x_.load(to + static_cast<uint32_t>(p_.tile_outputs * kPortableRowBytes), feature,
                p_.in_features);
        to += bytes;
      }
      if (at_.advance(p_, boxes) && at_.is_valid(p_)) find();
    }
    commit_copies();
  }

 private:
  __device__ void find() {
    const Tile tile(p_, at_.item / p_.num_splits, p_.tile_outputs);
    const PortableSlice& slice = p_.slices[tile.slice];
    weights_ = {slice.weight, slice.weight_stride, tile.first_output, tile.width};
  }

  const PortableDecodeParams& p_;
  DecodePlace at_;
  uint32_t shared_;
  RowLoader<kPortableMaxTile / 32> weights_;
  RowLoader<(kMaxRows + 31) / 32> x_;
};

/// y of two outputs of a row, side by side; the second may be out of the tile.
template <class T>
__device__ void store_pair(const PortableDecodeParams& p, const PortableSlice& slice, int row,
                           int output, int left, float low, float high) {
  if (left <= 0 || row >= p.num_rows) return;
  const int64_t at = row * slice.y_stride + output;
  if (p.y_dtype == DType::kFloat32) {
    auto* const y = static_cast<float*>(slice.y) + at;
    y[0] = low;
    if (left > 1) y[1] = high;
    return;
  }
  auto* const y = static_cast<T*>(slice.y) + at;
  if (left > 1 && slice.has_y_pairs) {
    *reinterpret_cast<uint32_t*>(y) = narrow_two<T>({low, high});
    return;
  }
  y[0] = narrow<T>(low);
  if (left > 1) y[1] = narrow<T>(high);
}

/// The sums of a warp: 16 outputs for each of kOutputTiles, times 8 rows for each of kRowTiles.
template <int kOutputTiles, int kRowTiles>
using DecodeSums = float[kOutputTiles][kRowTiles][4];

/// Which of them a warp has.
template <int kRowTiles, int kRowWarps>
struct WarpTiles {
  static constexpr int kOutputWarps = kPortableWarps / kRowWarps;
  int first_output, first_row;  // tiles; every kOutputWarps-th of the former
  int num_outputs, num_rows;    // tiles of all warps, and row tiles of this one

  __device__ explicit WarpTiles(const PortableDecodeParams& p) {
    // Uniform over the warp, also for the compiler.
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);
    first_output = warp / kRowWarps;
    first_row = warp % kRowWarps * kRowTiles;
    num_outputs = p.tile_outputs / 16;
    num_rows = (p.num_rows + 7) / 8 - first_row;
  }
};

/// Multiplies 64 features of a tile. weights, x: of the lane, as load_matrices() takes them.
template <class T, int kOutputTiles, int kRowTiles, int kRowWarps>
__device__ void multiply_box(const WarpTiles<kRowTiles, kRowWarps>& tiles, uint32_t weights,
                             uint32_t x, DecodeSums<kOutputTiles, kRowTiles>& sum) {
  constexpr int kOutputWarps = kPortableWarps / kRowWarps;
#pragma unroll
  for (int k = 0; k < kPortableStepFeatures / 16; ++k) {
    const uint32_t w_at = features_at(weights, k), x_at = features_at(x, k);
    uint32_t w[kOutputTiles][4];
#pragma unroll
    for (int m = 0; m < kOutputTiles; ++m) {
      if (tiles.first_output + kOutputWarps * m < tiles.num_outputs) {
        load_matrices(w[m], w_at + m * kOutputWarps * 16 * kPortableRowBytes);
      }
    }
#pragma unroll
    for (int n = 0; n < kRowTiles; n += 2) {
      if (n >= tiles.num_rows) continue;
      uint32_t b[4];
      load_matrices(b, x_at + n * 8 * kPortableRowBytes);
#pragma unroll
      for (int m = 0; m < kOutputTiles; ++m) {
        if (tiles.first_output + kOutputWarps * m < tiles.num_outputs) {
          mma_m16n8k16<T>(sum[m][n], w[m], b[0], b[1]);
          mma_m16n8k16<T>(sum[m][n + 1], w[m], b[2], b[3]);
        }
      }
    }
  }
}

template <class T, int kRowTiles, int kOutputTiles, int kRowWarps>
__global__ void __launch_bounds__(kPortableThreads, 1)
    portable_decode_kernel(const __grid_constant__ PortableDecodeParams p) {
  extern __shared__ __align__(128) std::byte shared_bytes[];
  __shared__ int is_last;
  constexpr int kOutputWarps = kPortableWarps / kRowWarps;
  constexpr int kMaxRows = kRowWarps * kRowTiles * 8, kStages = portable_stages(kMaxRows);
  const uint32_t shared = shared_address(shared_bytes);
  const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, q = lane % 4;
  const WarpTiles<kRowTiles, kRowWarps> tiles(p);
  const int out_warp = tiles.first_output, first_row = 8 * tiles.first_row;
  const int output_tiles = tiles.num_outputs, row_tiles = tiles.num_rows;
  const uint32_t bytes = box_bytes(p);

  const uint32_t own_weights = shared + first_rows_at(16 * tiles.first_output);
  const uint32_t own_x = shared + static_cast<uint32_t>(p.tile_outputs * kPortableRowBytes) +
                         second_rows_at(8 * tiles.first_row);

  DecodeLoader<kMaxRows> loader(p, shared);
  for (int i = 0; i < kStages - 1; ++i) loader.load(i);
  DecodeSums<kOutputTiles, kRowTiles> sum;
  const auto clear = [&] {
#pragma unroll
    for (auto& of_tile : sum) {
#pragma unroll
      for (auto& four : of_tile) four[0] = four[1] = four[2] = four[3] = 0.0f;
    }
  };
  clear();
  DecodePlace at(p, static_cast<int>(blockIdx.x));
  int stage = 0;
  while (at.is_valid(p)) {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    loader.load((stage + kStages - 1) % kStages);
    const int boxes = at.num_boxes(p);
    const uint32_t box = static_cast<uint32_t>(stage * p.stage_boxes) * bytes;
    uint32_t weights = own_weights + box, x = own_x + box;
    stage = (stage + 1) % kStages;
#pragma unroll 1
    for (int i = 0; i < boxes; ++i) {
      multiply_box<T, kOutputTiles, kRowTiles, kRowWarps>(tiles, weights, x, sum);
      weights += bytes, x += bytes;
    }
    const int item = at.item;
    if (!at.advance(p, boxes)) continue;
    // The end of an item.
    const int tile_index = item / p.num_splits, split = item % p.num_splits;
    const int all_row_tiles = (p.num_rows + 7) / 8;
    float4* const parts =
        p.parts + int64_t{tile_index} * p.num_splits * output_tiles * all_row_tiles * 32;
    const int part_stride = output_tiles * all_row_tiles * 32;
    const auto for_each = [&](auto&& f) {
#pragma unroll
      for (int m = 0; m < kOutputTiles; ++m) {
        const int tile = out_warp + kOutputWarps * m;
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
          if (tile < output_tiles && n < row_tiles) {
            f(sum[m][n], (tile * all_row_tiles + first_row / 8 + n) * 32 + lane, tile * 16,
              first_row + 8 * n);
          }
        }
      }
    };
    if (p.num_splits > 1) {
      for_each([&](const float(&v)[4], int index, int, int) {
        parts[split * part_stride + index] = {v[0], v[1], v[2], v[3]};
      });
      __threadfence();
      __syncthreads();
      if (threadIdx.x == 0) {
        const bool last =
            add_to_counter(&p.counters[tile_index], 1) == static_cast<uint32_t>(p.num_splits - 1);
        if (last) p.counters[tile_index] = 0;
        is_last = last ? 1 : 0;
      }
      __syncthreads();
      if (is_last == 0) {
        clear();
        continue;
      }
      for_each([&](float(&v)[4], int index, int, int) {
        float4 total = __ldcg(parts + index);
#pragma unroll 1
        for (int s = 1; s < p.num_splits; ++s) {
          const float4 more = __ldcg(parts + s * part_stride + index);
          total.x += more.x, total.y += more.y, total.z += more.z, total.w += more.w;
        }
        v[0] = total.x, v[1] = total.y, v[2] = total.z, v[3] = total.w;
      });
    }
    const Tile tile(p, tile_index, p.tile_outputs);
    const PortableSlice& slice = p.slices[tile.slice];
    for_each([&](float(&v)[4], int, int tile_output, int row) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int output = tile_output + 8 * half + g;
        float first = v[2 * half], second = v[2 * half + 1];  // rows 2 q and 2 q + 1
        if (slice.bias != nullptr && output < tile.width) {
          const float bias = widen(static_cast<const T*>(slice.bias)[tile.first_output + output]);
          first += bias, second += bias;
        }
        // Lanes of outputs g and g + 1 give each other one row's.
        const bool is_odd = (g & 1) != 0;
        const float other = __shfl_xor_sync(0xffffffffu, is_odd ? first : second, 4);
        const int low_output = output - (is_odd ? 1 : 0);
        store_pair<T>(p, slice, row + 2 * q + (is_odd ? 1 : 0), tile.first_output + low_output,
                      tile.width - low_output, is_odd ? other : first, is_odd ? second : other);
      }
    });
    clear();
  }
  wait_for_copies<0>();
}

}  // namespace heddle::cuda::linear_site
