#include "ops/sampling/mask/mask_logits.h"

#include <algorithm>
#include <limits>

#include "heddle/config.h"
#include "heddle/core/check.h"
#include "heddle/ops/sampling.h"

#include "core/check_kernels.h"
#include "core/math.h"
#include "core/scoped_operation.h"

namespace heddle {
namespace {

MaskParams check_mask(const ExecContext& ctx, const TensorView& masked,
                      const ConstTensorView& logits, const ConstTensorView& indices,
                      const ConstTensorView& masks) {
  check_has_kernels(ctx, "mask_logits");
  Dim rows("num_rows"), vocab("vocab_size"), num_masks("num_masks");
  check_shape("logits", logits, {&rows, &vocab});
  check_shape("masked", masked, {&rows, &vocab});
  check_shape("indices", indices, {&rows});
  Dim words("ceil(vocab_size / 32)", ceil_div(vocab.value(), kTokensPerWord));
  check_shape("masks", masks, {&num_masks, &words});
  check_dtype("logits", logits, {DType::kFloat32});
  check_dtype("masked", masked, {DType::kFloat32});
  check_dtype("indices", indices, {DType::kInt32});
  check_dtype("masks", masks, {DType::kInt32});
  check_unit_stride("logits", logits);
  check_unit_stride("masked", masked);
  check_unit_stride("indices", indices);
  check_unit_stride("masks", masks);
  check_device(ctx,
               {{"masked", masked}, {"logits", logits}, {"indices", indices}, {"masks", masks}});
  return {.masked = masked.data<float>(),
          .logits = logits.data<float>(),
          .indices = indices.data<int32_t>(),
          .masks = masks.data<int32_t>(),
          .masked_stride = masked.stride(0),
          .logits_stride = logits.stride(0),
          .mask_stride = masks.stride(0),
          .num_rows = rows.value(),
          .vocab_size = vocab.value(),
          .num_masks = num_masks.value(),
          .num_words = words.value()};
}

void mask_row(const MaskParams& p, int64_t row) {
  float* const to = p.masked + row * p.masked_stride;
  const float* const from = p.logits + row * p.logits_stride;
  const int64_t index = p.indices[row];
  if (index < 0 || index >= p.num_masks) {
    if (to != from) std::copy_n(from, p.vocab_size, to);
    return;
  }
  const int32_t* const words = p.masks + index * p.mask_stride;
  for (int64_t w = 0; w < p.num_words; ++w) {
    const int64_t begin = w * kTokensPerWord;
    const int64_t end = std::min(begin + kTokensPerWord, p.vocab_size);
    const auto word = static_cast<uint32_t>(words[w]);
    for (int64_t t = begin; t < end; ++t) {
      const bool is_allowed = (word >> (t - begin) & 1) != 0;
      to[t] = is_allowed ? from[t] : -std::numeric_limits<float>::infinity();
    }
  }
}

}  // namespace

void mask_logits(const ExecContext& ctx, TensorView masked, ConstTensorView logits,
                 ConstTensorView indices, ConstTensorView masks) {
  const MaskParams params = check_mask(ctx, masked, logits, indices, masks);
  if (ctx.device.type == DeviceType::kCpu) {
    parallel_for(ctx, params.num_rows, 1, [&params](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) mask_row(params, row);
    });
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("mask_logits");
    cuda::sampling::mask_logits(ctx, params);
  }
}

}  // namespace heddle
