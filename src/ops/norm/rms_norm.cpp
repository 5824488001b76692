#include "heddle/config.h"
#include "heddle/core/check.h"
#include "heddle/ops/norm.h"

#include "core/scoped_operation.h"
#include "ops/norm/rms_norm_kernels.h"
#include "ops/norm/run_cuda.h"

namespace heddle {
namespace {

constexpr int64_t kElementsPerChunk =
    16384;  // some microseconds of work, well above the cost of handing it out

/// Bytes from the first element to row `row` of a tensor whose rows are counted over all axes but
/// the last.
int64_t row_offset(const ConstTensorView& t, int64_t row) {
  int64_t offset = 0;
  for (int d = t.rank() - 1; d-- > 0; row /= t.size(d)) offset += row % t.size(d) * t.stride(d);
  return offset * int64_t(size_of(t.dtype()));
}

/// Bytes between two rows that follow each other on the innermost of the outer axes.
int64_t row_stride(const ConstTensorView& t) {
  return t.rank() < 2 ? 0 : t.stride(t.rank() - 2) * int64_t(size_of(t.dtype()));
}

void check_like_input(const char* tensor, const ConstTensorView& t, const ConstTensorView& input) {
  HEDDLE_CHECK(t.rank() == input.rank(), tensor, " has rank ", t.rank(), ", but input has rank ",
               input.rank());
  for (int d = 0; d < t.rank(); ++d) {
    HEDDLE_CHECK(t.size(d) == input.size(d), tensor, ".size(", d, ") is ", t.size(d),
                 ", but input.size(", d, ") is ", input.size(d));
  }
  check_unit_stride(tensor, t);
}

void check_dtype_of_input(const char* tensor, const ConstTensorView& t,
                          const ConstTensorView& input) {
  HEDDLE_CHECK(t.dtype() == input.dtype(), tensor, " is ", t.dtype(), ", but input is ",
               input.dtype());
}

/// `scales` has the rows of input, one after the other.
void check_row_scales(const ConstTensorView& scales, const ConstTensorView& input) {
  const char* const tensor = "output_scale.per_row";
  check_dtype(tensor, scales, {DType::kFloat32});
  HEDDLE_CHECK(scales.rank() == input.rank() - 1, tensor, " has rank ", scales.rank(),
               ", expected ", input.rank() - 1, ", one less than input");
  int64_t stride = 1;
  for (int d = scales.rank(); d-- > 0; stride *= scales.size(d)) {
    HEDDLE_CHECK(scales.size(d) == input.size(d), tensor, ".size(", d, ") is ", scales.size(d),
                 ", but input.size(", d, ") is ", input.size(d));
    HEDDLE_CHECK(scales.size(d) <= 1 || stride == 0 || scales.stride(d) == stride, tensor,
                 ".stride(", d, ") is ", scales.stride(d), ", expected ", stride);
  }
}

void check_output_scale(const ExecContext& ctx, const ConstTensorView& output,
                        const ConstTensorView& input, const Fp8OutputScale& scale) {
  const bool has_fixed{scale.fixed}, has_per_row{scale.per_row};
  check_device(ctx, {{"output_scale.fixed", scale.fixed}, {"output_scale.per_row", scale.per_row}});
  if (output.dtype() != DType::kFloat8E4M3) {
    const bool is_narrower =
        input.dtype() == DType::kFloat32 &&
        (output.dtype() == DType::kFloat16 || output.dtype() == DType::kBFloat16);
    if (!is_narrower) check_dtype_of_input("output", output, input);
    HEDDLE_CHECK(!has_fixed && !has_per_row, "output_scale is given, but output is ",
                 output.dtype(), ", not f8e4m3");
    return;
  }
  HEDDLE_CHECK(has_fixed != has_per_row, "output is f8e4m3, but of output_scale.fixed and ",
               "output_scale.per_row ", has_fixed ? "both are" : "none is", " given");
  if (has_per_row) return check_row_scales(scale.per_row, input);
  check_dtype("output_scale.fixed", scale.fixed, {DType::kFloat32});
  HEDDLE_CHECK(scale.fixed.rank() <= 1 && scale.fixed.num_elements() == 1,
               "output_scale.fixed has rank ", scale.fixed.rank(), " and ",
               scale.fixed.num_elements(), " elements, expected one element");
}

void check_arguments(const ExecContext& ctx, const ConstTensorView& output,
                     const ConstTensorView& input, const ConstTensorView& weight,
                     const RmsNormOptions& options) {
  check_device(ctx, {{"output", output}, {"input", input}, {"weight", weight}});
  HEDDLE_CHECK(input.rank() >= 1, "input has rank 0, expected at least 1");
  check_dtype("input", input, {DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  check_unit_stride("input", input);
  check_like_input("output", output, input);
  check_output_scale(ctx, output, input, options.output_scale);
  Dim width("width", input.size(input.rank() - 1));
  check_shape("weight", weight, {&width});
  HEDDLE_CHECK(weight.dtype() == input.dtype() || weight.dtype() == DType::kFloat32, "weight is ",
               weight.dtype(), ", expected ", input.dtype(), " as input, or f32");
  check_unit_stride("weight", weight);
  HEDDLE_CHECK(options.weight_offset == 0 || options.weight_offset == 1, "weight_offset is ",
               options.weight_offset, ", expected 0 or 1");
  HEDDLE_CHECK(options.epsilon >= 0.0f, "epsilon is ", options.epsilon, ", expected 0 or more");
}

/// Shares the rows among the threads; a chunk is computed in runs along the innermost of the outer
/// axes.
void normalise_on_cpu(const ExecContext& ctx, const TensorView& output, const TensorView& residual,
                      const ConstTensorView& input, const ConstTensorView& weight,
                      const RmsNormOptions& options) {
  const int64_t width = input.size(input.rank() - 1), num_rows = input.num_elements() / width;
  const int64_t axis_rows = input.rank() < 2 ? 1 : input.size(input.rank() - 2);
  const int64_t grain = kElementsPerChunk / width > 0 ? kElementsPerChunk / width : 1;
  const RmsNormScale scale = pack(options.output_scale);
  parallel_for(ctx, num_rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin, run_rows = 0; row < end; row += run_rows) {
      const int64_t left_on_axis = axis_rows - row % axis_rows;
      run_rows = left_on_axis < end - row ? left_on_axis : end - row;
      float* const row_scales = scale.per_row == nullptr ? nullptr : scale.per_row + row;
      cpu::norm::rms_norm(
          {.output = output.raw() + row_offset(output, row),
           .residual = residual ? residual.raw() + row_offset(residual, row) : nullptr,
           .input = input.raw() + row_offset(input, row),
           .weight = weight.raw(),
           .output_stride = row_stride(output),
           .residual_stride = row_stride(residual),
           .input_stride = row_stride(input),
           .scale = {.fixed = scale.fixed, .per_row = row_scales},
           .num_rows = run_rows,
           .width = width,
           .dtype = input.dtype(),
           .weight_dtype = weight.dtype(),
           .output_dtype = output.dtype(),
           .epsilon = options.epsilon,
           .weight_offset = static_cast<float>(options.weight_offset)});
    }
  });
}

void normalise(const ExecContext& ctx, const char* op, const TensorView& output,
               const TensorView& residual, const ConstTensorView& input,
               const ConstTensorView& weight, const RmsNormOptions& options) {
  if (input.num_elements() == 0) return;
  if (ctx.device.type == DeviceType::kCpu) {
    normalise_on_cpu(ctx, output, residual, input, weight, options);
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation(op);
    run_rms_norm_cuda(ctx, output, residual, input, weight, options);
  } else {
    throw_error(ErrorCode::kUnsupported, op, ": built without CUDA");
  }
}

}  // namespace

void rms_norm(const ExecContext& ctx, TensorView output, ConstTensorView input,
              ConstTensorView weight, const RmsNormOptions& options) {
  check_arguments(ctx, output, input, weight, options);
  normalise(ctx, "rms_norm", output, {}, input, weight, options);
}

void fused_add_rms_norm(const ExecContext& ctx, TensorView output, TensorView residual,
                        ConstTensorView input, ConstTensorView weight,
                        const RmsNormOptions& options) {
  check_arguments(ctx, output, input, weight, options);
  check_device(ctx, {{"residual", residual}});
  check_like_input("residual", residual, input);
  check_dtype_of_input("residual", residual, input);
  normalise(ctx, "fused_add_rms_norm", output, residual, input, weight, options);
}

}  // namespace heddle
