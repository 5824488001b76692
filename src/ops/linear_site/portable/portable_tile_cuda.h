#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/convert_cuda.h"
#include "cuda/memory_cuda.h"
#include "cuda/mma_cuda.h"

#include "ops/linear_site/call/output_tile_cuda.h"
#include "ops/linear_site/portable/portable_params_cuda.h"

namespace heddle::cuda::linear_site {

/// Where 16 bytes of a row of 128 lie in shared memory: eight rows have them at other banks, as
/// load_matrices() reads them.
__device__ inline uint32_t swizzled(int row, int chunk) {
  return static_cast<uint32_t>(row * kPortableRowBytes + ((chunk ^ (row & 7)) << 4));
}

/// What a lane gives to load_matrices() for 16 features of the rows [first_row, first_row + 16):
/// of the side M of a product, and of the side N, eight rows and eight more. first_row: a multiple
/// of 8.
__device__ inline uint32_t first_rows_at(int first_row) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return swizzled(first_row + lane % 16, lane / 16);
}
__device__ inline uint32_t second_rows_at(int first_row) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return swizzled(first_row + lane / 16 * 8 + lane % 8, lane / 8 % 2);
}
/// Such an address for the features from 16 k of a row on: bits of a chunk's number are bits of the
/// address.
__device__ inline uint32_t features_at(uint32_t address, int k) {
  return address ^ static_cast<uint32_t>(k << 5);
}

/// What a thread copies of rows of one matrix: 16 bytes of every 32nd row, at most kMax of them.
/// Few instructions count: they run for every 64 features. Rows that are not there are left as
/// they are: their sums are not used.
template <int kMax>
class RowLoader {
 public:
  RowLoader() = default;
  /// Elements of two bytes.
  __device__ RowLoader(const void* rows, int64_t stride, int first_row, int num_rows) {
    const int row = static_cast<int>(threadIdx.x) / 8;
    from_ = static_cast<const std::byte*>(rows) + 2 * (int64_t{first_row} + row) * stride +
            static_cast<int>(threadIdx.x) % 8 * 16;
    step_ = 64 * stride;
    num_ = num_rows - row;
  }
  /// Starts to copy 64 features. to: of this thread's first row and chunk.
  __device__ void load(uint32_t to, int feature, int in_features) const {
    const std::byte* from = from_ + 2 * feature;
    if (feature + kPortableStepFeatures <= in_features) {
#pragma unroll
      for (int i = 0; i < kMax; ++i) {
        if (32 * i < num_) copy_async_16(to + i * kStride, from);
        from += step_;
      }
      return;
    }
    const int chunk = feature + static_cast<int>(threadIdx.x) % 8 * 8;
    const int bytes = max(0, min(16, 2 * (in_features - chunk)));
#pragma unroll 1
    for (int i = 0; i < kMax && 32 * i < num_; ++i) {
      copy_async_16(to + i * kStride, bytes > 0 ? from + i * step_ : from_, bytes);
    }
  }

 private:
  static constexpr uint32_t kStride = 32 * kPortableRowBytes;
  const std::byte* from_;  // this thread's first row and chunk
  int64_t step_;           // bytes of 32 rows
  int num_;                // rows from this thread's first on
};

}  // namespace heddle::cuda::linear_site
