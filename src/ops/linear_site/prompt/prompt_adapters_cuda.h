#pragma once

#include "cuda/load_cuda.h"
#include "cuda/memory_cuda.h"

#include "core/math.h"
#include "ops/linear_site/prompt/warp_rows_cuda.h"
#include "ops/lora_device/expand_product_cuda.h"
#include "ops/lora_device/grouped/row_tile_h_cuda.h"

namespace heddle::cuda::linear_site {

// B h next to a tile's sums. A warp's rows are neighbours in the batch and may have several
// adapters: for each of them the warp multiplies all of its rows, and keeps the sums of those that
// have it. Each sum is that of lora_apply, operation by operation
// (ops/lora_device/expand_product_cuda.h). What the first adapter needs is loaded while the last
// features of the tile are multiplied: each of three loads waits for the one before.

/// h of a lane for 16 ranks of the rows g and g + 8, first as hi, then as lo.
struct PromptH {
  uint32_t v[2][4];
};

template <class T, int kSums>
class WarpAdapters {
 public:
  __device__ explicit WarpAdapters(const PromptAdapters& c) : c_(c) {}
  /// Starts to load which adapters the rows have.
  __device__ void find_rows(const WarpRows& rows, int num_rows_of_all) {
    const auto* const own = reinterpret_cast<const uint32_t*>(
        c_.rows + int64_t{rows.slice_index} * num_rows_of_all + rows.first_row + lane());
    const bool in_range = lane() < rows.num_rows;
    own_slot_ = static_cast<int>(load_changing_word_if(own, in_range));
    own_h_row_ = static_cast<int>(load_changing_word_if(own + 1, in_range));
    own_rank_ = static_cast<int>(load_changing_word_if(own + 2, in_range));
    own_factor_ = __uint_as_float(load_changing_word_if(own + 3, in_range));
  }
  /// Starts to load where B of the first adapter is.
  __device__ void find_first(const WarpRows& rows) {
    if (lane() >= rows.num_rows) own_slot_ = kNoAdapter;
    left_ = __ballot_sync(lora::kAllLanes, own_slot_ >= 0);
    find(rows);
  }
  /// Starts to load its h, and brings B of up to 16 ranks to the first cache, for all warps of the
  /// block: that of 32 outputs each.
  __device__ void load_first(const WarpRows& rows, int warp) {
    if (left_ == 0 || !is_narrow()) return;
    load_h(rows, 0, h_);
    touch(b_data_ + min(32 * warp + lane(), rows.width - 1) * b_stride_);
  }
  /// Adds all adapters to the sums, the first of which has been loaded.
  __device__ void add(const WarpRows& rows, float (&sum)[kSums]) {
    while (left_ != 0) {
      float factor[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) factor[i] = of_row(own_factor_, i);
      if (rank_ == 0) {
        refuse(factor, sum);
      } else if (is_narrow()) {
        add_narrow(rows, factor, sum);
      } else {
        add_wide(rows, factor, sum);
      }
      left_ &= ~same_;
      find(rows);
      if (left_ != 0 && is_narrow()) load_h(rows, 0, h_);
    }
  }

 private:
  static constexpr int kColumns = kSums / 4;  // of 8 outputs
  // Of which B of 16 ranks, or of 32, is loaded at once.
  static constexpr int kNarrowColumns = 4, kWideColumns = 4;

  [[nodiscard]] static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  [[nodiscard]] static __device__ int g() { return lane() / 4; }
  [[nodiscard]] static __device__ int q() { return lane() % 4; }
  /// What the lane of row g, or of row g + 8, has.
  template <class V>
  [[nodiscard]] static __device__ V of_row(V own, int i) {
    return __shfl_sync(lora::kAllLanes, own, g() + 8 * i);
  }
  static __device__ void touch(const T* p) {
    uint32_t word;
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(word) : "l"(p));
  }
  [[nodiscard]] __device__ bool is_narrow() const { return rank_ > 0 && rank_ <= lora::kTileRanks; }
  [[nodiscard]] __device__ bool has_row(int i) const { return (same_ >> (g() + 8 * i) & 1) != 0; }

  /// The adapter of the first row that is left.
  __device__ void find(const WarpRows& rows) {
    if (left_ == 0) return;
    const int first = __ffs(static_cast<int>(left_)) - 1;
    const int slot = __shfl_sync(lora::kAllLanes, own_slot_, first);
    rank_ = __shfl_sync(lora::kAllLanes, own_rank_, first);
    same_ = __ballot_sync(lora::kAllLanes, own_slot_ == slot);
    const LoraWeight* const b = c_.b + int64_t{slot} * c_.b_stride + rows.slice_index;
    const uint2 data = load_once_8(&b->data), stride = load_once_8(&b->row_stride);
    b_stride_ = static_cast<int64_t>(uint64_t{stride.y} << 32 | stride.x);
    b_data_ = reinterpret_cast<const T*>(uint64_t{data.y} << 32 | data.x) +
              (c_.first_output + rows.first_output) * b_stride_;
  }
  __device__ void load_h(const WarpRows& rows, int step, PromptH& h) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int h_row = of_row(own_h_row_, i), swap = lora::h_swap(h_row, c_.h_row_vectors);
      const std::byte* const from = c_.h + rows.slice_index * c_.h_slice_bytes +
                                    int64_t{h_row} * c_.h_row_vectors * lora::kHVectorBytes +
                                    4 * q();
#pragma unroll
      for (int k = 0; k < lora::kHStepVectors; ++k) {
        const int vector = (step * lora::kHStepVectors + k) ^ swap;
        h.v[k / 2][i + k % 2 * 2] =
            load_changing_word_if(from + vector * lora::kHVectorBytes, has_row(i));
      }
    }
  }

  /// Adds the products of 16 ranks of some columns: first those of hi, then those of lo.
  template <int kNum, class GetB>
  static __device__ void multiply(const PromptH& h, GetB&& b, float (&delta)[kNum][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < kNum; ++i) mma_m16n8k16<T>(delta[i], h.v[half], b(i).x, b(i).y);
    }
  }
  /// Rows of a foreign plan, which join gives no rank, and NaN as their factor: B is not read.
  __device__ void refuse(const float (&factor)[2], float (&sum)[kSums]) const {
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
      if (has_row(k % 4 / 2)) sum[k] = factor[k % 4 / 2];
    }
  }
  /// To the rows that have the adapter.
  __device__ void add_delta(const float (&factor)[2], const float (&delta)[4], float* sum) const {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (has_row(k / 2)) sum[k] = __fmaf_rn(factor[k / 2], delta[k], sum[k]);
    }
  }
  /// In few instructions, which counts more than when B comes: they run once a tile.
  __device__ void add_narrow(const WarpRows& rows, const float (&factor)[2],
                             float (&sum)[kSums]) const {
    // Ranks 4 q to 4 q + 3 of output g of each eight.
    const auto* eight = reinterpret_cast<const std::byte*>(b_data_);
    const auto stride = static_cast<uint32_t>(b_stride_) * uint32_t{sizeof(T)};
    const uint32_t of_lane = g() * stride + q() * uint32_t{4 * sizeof(T)};
    const int width = 4 * q() < rank_ ? rows.width - g() : 0;
#pragma unroll
    for (int first = 0; first < kColumns; first += kNarrowColumns) {
      uint2 b[kNarrowColumns];
#pragma unroll
      for (int i = 0; i < kNarrowColumns; ++i) {
        b[i] = load_constant_words_if(eight + of_lane, 8 * (first + i) < width);
        eight += 8 * stride;
      }
      float delta[kNarrowColumns][4] = {};
      multiply(
          h_, [&](int i) { return b[i]; }, delta);
#pragma unroll
      for (int i = 0; i < kNarrowColumns; ++i) add_delta(factor, delta[i], &sum[4 * (first + i)]);
    }
  }
  /// B of 32 ranks from `rank` on, of some columns.
  __device__ void load_wide(const WarpRows& rows, int first, int rank,
                            uint4 (&b)[kWideColumns]) const {
#pragma unroll
    for (int i = 0; i < kWideColumns; ++i) {
      const int output = 8 * (first + i) + g();
      const bool in_range = rank + 8 * q() < rank_ && output < rows.width;
      b[i] = {0, 0, 0, 0};
      if (in_range) {
        b[i] = __ldg(reinterpret_cast<const uint4*>(b_data_ + output * b_stride_ + rank + 8 * q()));
      }
    }
  }
  __device__ void add_wide(const WarpRows& rows, const float (&factor)[2],
                           float (&sum)[kSums]) const {
#pragma unroll
    for (int first = 0; first < kColumns; first += kWideColumns) {
      if (8 * first >= rows.width) break;
      float delta[kWideColumns][4] = {};
#pragma unroll 1
      for (int rank = 0; rank < rank_; rank += 32) {
        uint4 b[kWideColumns];
        load_wide(rows, first, rank, b);
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          PromptH h;
          load_h(rows, rank / 16 + step, h);
          const auto of_step = [&](int i) {
            return step == 0 ? uint2{b[i].x, b[i].y} : uint2{b[i].z, b[i].w};
          };
          multiply(h, of_step, delta);
        }
      }
#pragma unroll
      for (int i = 0; i < kWideColumns; ++i) add_delta(factor, delta[i], &sum[4 * (first + i)]);
    }
  }

  const PromptAdapters& c_;
  int own_slot_ = kNoAdapter, own_h_row_ = 0, own_rank_ = 0;  // of row `lane`
  float own_factor_ = 0.0f;
  unsigned left_ = 0, same_ = 0;  // rows: with adapters to come, with the one that is found
  int rank_ = 0;
  int64_t b_stride_ = 0;
  const T* b_data_ = nullptr;
  PromptH h_{};
};

}  // namespace heddle::cuda::linear_site
