#include "ops/norm/run_cuda.h"

#include "core/kernel_log.h"
#include "ops/norm/rms_norm_rows.h"

namespace heddle {
namespace {

using cuda::norm::RmsNormOutput;

constexpr int64_t kMaxRows = int64_t{1} << 30;  // of one launch, whose grid has an axis of 2^31 - 1
constexpr uint64_t kVectorBytes = 16;

cuda::norm::RmsNormTensor pack_tensor(std::byte* data, const RowBlock& block, size_t t) {
  if (data == nullptr) return {};
  cuda::norm::RmsNormTensor packed{.data = data + block.offsets[t], .strides = {}};
  for (size_t d = 0; d < block.strides.size(); ++d) packed.strides[d] = block.strides[d][t];
  return packed;
}

/// The address and the steps in one: what divides it divides each. 0 for an absent tensor.
uint64_t bits_of(const cuda::norm::RmsNormTensor& t) {
  auto bits = reinterpret_cast<uint64_t>(t.data);
  for (const int64_t stride : t.strides) bits |= static_cast<uint64_t>(stride);
  return bits;
}

RmsNormOutput output_type(DType output, DType input) {
  if (output == input) return RmsNormOutput::kAsInput;
  if (output == DType::kFloat8E4M3) return RmsNormOutput::kFp8;
  return output == DType::kFloat16 ? RmsNormOutput::kFloat16 : RmsNormOutput::kBFloat16;
}

bool is_aligned(const cuda::norm::RmsNormParams& p) {
  const uint64_t output_bits = bits_of(p.output) * (p.output_type == RmsNormOutput::kFp8 ? 2 : 1);
  const uint64_t bits =
      output_bits | bits_of(p.residual) | bits_of(p.input) | reinterpret_cast<uint64_t>(p.weight);
  return bits % kVectorBytes == 0 && p.width % cuda::norm::kVectorElements == 0;
}

}  // namespace

void run_rms_norm_cuda(const ExecContext& ctx, const TensorView& output, const TensorView& residual,
                       const ConstTensorView& input, const ConstTensorView& weight,
                       const RmsNormOptions& options) {
  const RmsNormScale scale = pack(options.output_scale);
  for_each_row_block(
      merge_row_axes({output, residual, input}), kMaxRows, [&](const RowBlock& block) {
        const cuda::norm::RmsNormParams params{
            .output = pack_tensor(output.raw(), block, 0),
            .residual = pack_tensor(residual.raw(), block, 1),
            .input = pack_tensor(const_cast<std::byte*>(input.raw()), block, 2),
            .weight = weight.raw(),
            .scale = {.fixed = scale.fixed,
                      .per_row =
                          scale.per_row == nullptr ? nullptr : scale.per_row + block.first_row},
            .width = input.size(input.rank() - 1),
            .chunk_width = 0,
            .num_rows = block.sizes[0] * block.sizes[1] * block.sizes[2],
            .sizes = {block.sizes[0], block.sizes[1], block.sizes[2]},
            .inverse_width = 1.0f / static_cast<float>(input.size(input.rank() - 1)),
            .epsilon = options.epsilon,
            .weight_offset = static_cast<float>(options.weight_offset),
            .is_weight_f32 = weight.dtype() == DType::kFloat32,
            .output_type = output_type(output.dtype(), input.dtype()),
        };
        const cuda::norm::RmsNormChoice choice =
            cuda::norm::select_rms_norm_kernel(params.width, is_aligned(params));
        log_choice("rms_norm", choice);
        cuda::norm::rms_norm(params, {.device = ctx.device.index,
                                      .num_sms = ctx.info.num_sms,
                                      .stream = ctx.stream,
                                      .dtype = input.dtype(),
                                      .choice = choice});
      });
}

}  // namespace heddle
