#pragma once

#include <cstddef>
#include <cstdint>

#include "heddle/core/context.h"
#include "heddle/core/dtype.h"

#include "ops/norm/select_kernel.h"

namespace heddle {

/// Rows of f8e4m3 are divided by a scale: by one that is given, or by one per row that is written.
struct RmsNormScale {
  const float* fixed;  // [1], or nullptr
  float* per_row;      // [num_rows], or nullptr
};

/// The least scale of a row: its reciprocal is finite, so a row of zeros gives zeros.
inline constexpr float kMinFp8Scale = 0x1p-126f;
inline constexpr float kMaxFp8 = 448.0f;

namespace cpu::norm {

/// Rows that lie at constant distances. With a residual, it takes the input in first and the norm
/// is taken of it.
struct RmsNormRun {
  std::byte* output;                                     // [num_rows, width], output_dtype
  std::byte* residual;                                   // [num_rows, width], dtype, or nullptr
  const std::byte* input;                                // [num_rows, width], dtype
  const std::byte* weight;                               // [width], weight_dtype: dtype or f32
  int64_t output_stride, residual_stride, input_stride;  // bytes between rows
  RmsNormScale scale;                                    // of an output of f8e4m3
  int64_t num_rows, width;
  DType dtype, weight_dtype, output_dtype;
  float epsilon, weight_offset;
};

void rms_norm(const RmsNormRun& run);

}  // namespace cpu::norm

namespace cuda::norm {

/// Axes that are counted as rows in one launch; the last of them is the innermost.
inline constexpr int kRmsNormAxes = 3;

struct RmsNormTensor {
  std::byte* data;                // nullptr: absent; of the input never written
  int64_t strides[kRmsNormAxes];  // bytes
};

/// What the output holds. f16 and bf16 as such are for an input of f32.
enum class RmsNormOutput : uint8_t { kAsInput, kFloat16, kBFloat16, kFp8 };

/// Row r is r = (i * sizes[1] + j) * sizes[2] + k of the three axes.
struct RmsNormParams {
  RmsNormTensor output, residual, input;  // [num_rows, width]
  const std::byte* weight;                // [width], f32 or as input
  RmsNormScale scale;                     // of an output of f8e4m3
  int64_t width, chunk_width;             // elements; see cut_of()
  uint32_t num_rows, sizes[kRmsNormAxes];
  float inverse_width, epsilon, weight_offset;
  bool is_weight_f32;
  RmsNormOutput output_type;

  /// Bytes of an element of the output, where one of the input has input_bytes.
  [[nodiscard]] constexpr int64_t output_bytes(int64_t input_bytes) const {
    if (output_type == RmsNormOutput::kAsInput) return input_bytes;
    return output_type == RmsNormOutput::kFp8 ? 1 : 2;
  }
};
static_assert(sizeof(RmsNormParams) <= 256);

struct RmsNormLaunch {
  int device, num_sms;
  cudaStream_t stream;
  DType dtype;  // of the input
  RmsNormChoice choice;
};
/// The cut of the rows need not be filled in.
void rms_norm(RmsNormParams params, const RmsNormLaunch& how);

}  // namespace cuda::norm
}  // namespace heddle
