#include <algorithm>
#include <cmath>
#include <utility>

#include "cuda/copies/host_copies.h"

#include "heddle/core/check.h"
#include "heddle/core/validate.h"
#include "heddle/ops/sampling.h"

#include "core/check_kernels.h"
#include "core/scoped_operation.h"
#include "cpu/validate_indices.h"
#include "ops/sampling/adjust/adjust_kernels.h"

namespace heddle {
namespace {

constexpr int64_t kRowsPerTask = 1;

void check_column(const ExecContext& ctx, const char* name, const ConstTensorView& column,
                  DType dtype, Dim& extent) {
  check_shape(name, column, {&extent});
  check_dtype(name, column, {dtype});
  check_unit_stride(name, column);
  check_device(ctx, {{name, column}});
}

/// The arguments that adjust and restore share; the other pointers stay nullptr.
AdjustParams check_entries(const ExecContext& ctx, const char* op, const TensorView& logits,
                           const LogitAdjustments& adjustments) {
  check_has_kernels(ctx, op);
  Dim rows("num_rows"), vocab("vocab_size"), entries("num_entries");
  check_shape("logits", logits, {&rows, &vocab});
  check_dtype("logits", logits, {DType::kFloat32});
  check_unit_stride("logits", logits);
  check_device(ctx, {{"logits", logits}});
  Dim starts("num_rows + 1", rows.value() + 1);
  check_column(ctx, "indptr", adjustments.indptr, DType::kInt32, starts);
  check_column(ctx, "token_ids", adjustments.token_ids, DType::kInt32, entries);
  return {.logits = logits.data<float>(),
          .row_stride = logits.stride(0),
          .num_rows = rows.value(),
          .vocab_size = vocab.value(),
          .num_entries = entries.value(),
          .indptr = adjustments.indptr.data<int32_t>(),
          .token_ids = adjustments.token_ids.data<int32_t>()};
}

AdjustParams check_adjust(const ExecContext& ctx, const TensorView& logits, const TensorView& saved,
                          const LogitAdjustments& a) {
  AdjustParams params = check_entries(ctx, "adjust_logits", logits, a);
  Dim rows("num_rows", params.num_rows), entries("num_entries", params.num_entries);
  check_column(ctx, "prompt_counts", a.prompt_counts, DType::kInt32, entries);
  check_column(ctx, "output_counts", a.output_counts, DType::kInt32, entries);
  check_column(ctx, "bias", a.bias, DType::kFloat32, entries);
  check_column(ctx, "repetition", a.repetition, DType::kFloat32, rows);
  check_column(ctx, "presence", a.presence, DType::kFloat32, rows);
  check_column(ctx, "frequency", a.frequency, DType::kFloat32, rows);
  if (saved) {
    check_column(ctx, "saved", saved, DType::kFloat32, entries);
    params.saved = saved.data<float>();
  }
  params.prompt_counts = a.prompt_counts.data<int32_t>();
  params.output_counts = a.output_counts.data<int32_t>();
  params.bias = a.bias.data<float>();
  params.repetition = a.repetition.data<float>();
  params.presence = a.presence.data<float>();
  params.frequency = a.frequency.data<float>();
  return params;
}

void validate_starts(const LogitAdjustments& a) {
  const int64_t num_entries = a.token_ids.size(0);
  cpu::check_indptr("indptr", a.indptr, num_entries, "num_entries");
  const auto* const starts = a.indptr.data<int32_t>();
  const auto* const ids = a.token_ids.data<int32_t>();
  for (int64_t r = 0; r + 1 < a.indptr.size(0); ++r) {
    for (int64_t i = starts[r] + 1; i < starts[r + 1]; ++i) {
      HEDDLE_CHECK(ids[i] > ids[i - 1], "token_ids[", i, "] is ", ids[i], ", expected above ",
                   "token_ids[", i - 1, "] = ", ids[i - 1], " of the same row");
    }
  }
}

/// What HEDDLE_VALIDATE=1 checks of values in host memory.
void validate(const LogitAdjustments& a) {
  validate_starts(a);
  for (int64_t i = 0; i < a.token_ids.size(0); ++i) {
    const int32_t in_prompt = a.prompt_counts.data<int32_t>()[i];
    const int32_t in_output = a.output_counts.data<int32_t>()[i];
    HEDDLE_CHECK(in_prompt >= 0, "prompt_counts[", i, "] is ", in_prompt, ", expected at least 0");
    HEDDLE_CHECK(in_output >= 0, "output_counts[", i, "] is ", in_output, ", expected at least 0");
    HEDDLE_CHECK(!std::isnan(a.bias.data<float>()[i]), "bias[", i, "] is NaN");
  }
  for (int64_t r = 0; r < a.repetition.size(0); ++r) {
    const float repetition = a.repetition.data<float>()[r];
    HEDDLE_CHECK(repetition > 0.0f && std::isfinite(repetition), "repetition[", r, "] is ",
                 repetition, ", expected a finite number above 0");
    for (const auto& [name, column] :
         {std::pair("presence", a.presence), std::pair("frequency", a.frequency)}) {
      const float value = column.data<float>()[r];
      HEDDLE_CHECK(std::isfinite(value), name, "[", r, "] is ", value,
                   ", expected a finite number");
    }
  }
}

/// The formula of the header for entry i of row r.
float adjusted(const AdjustParams& p, int64_t r, int64_t i, float logit) {
  const int32_t in_output = p.output_counts[i];
  const double repetition = p.repetition[r];
  double x = double{logit} + double{p.bias[i]};
  if (p.prompt_counts[i] + int64_t{in_output} > 0) x = x > 0.0 ? x / repetition : x * repetition;
  x -= double{p.frequency[r]} * in_output;
  if (in_output > 0) x -= double{p.presence[r]};
  return static_cast<float>(x);
}

/// visit(row, entry, logit) for each entry that has a logit. Starts that do not ascend or pass the
/// end give short rows.
template <class Visit>
void for_entries(const ExecContext& ctx, const AdjustParams& p, const Visit& visit) {
  parallel_for(ctx, p.num_rows, kRowsPerTask, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const int64_t begin = std::max(p.indptr[r], 0);
      const int64_t end = std::min<int64_t>(p.indptr[r + 1], p.num_entries);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t token = p.token_ids[i];
        if (token >= 0 && token < p.vocab_size) visit(r, i, p.logits[r * p.row_stride + token]);
      }
    }
  });
}

}  // namespace

void adjust_logits(const ExecContext& ctx, TensorView logits, TensorView saved,
                   const LogitAdjustments& adjustments) {
  const AdjustParams params = check_adjust(ctx, logits, saved, adjustments);
  if (validating()) {
    check_on_host(
        ctx,
        [&](auto& host) {
          const LogitAdjustments& a = adjustments;
          return LogitAdjustments{.indptr = host(a.indptr),
                                  .token_ids = host(a.token_ids),
                                  .prompt_counts = host(a.prompt_counts),
                                  .output_counts = host(a.output_counts),
                                  .bias = host(a.bias),
                                  .repetition = host(a.repetition),
                                  .presence = host(a.presence),
                                  .frequency = host(a.frequency)};
        },
        [](const LogitAdjustments& a) { validate(a); });
  }
  if (ctx.device.type == DeviceType::kCpu) {
    for_entries(ctx, params, [&params](int64_t r, int64_t i, float& logit) {
      if (params.saved != nullptr) params.saved[i] = logit;
      logit = adjusted(params, r, i, logit);
    });
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("adjust_logits");
    cuda::sampling::adjust_logits(ctx, params);
  }
}

void restore_logits(const ExecContext& ctx, TensorView logits, ConstTensorView saved,
                    const LogitAdjustments& adjustments) {
  AdjustParams params = check_entries(ctx, "restore_logits", logits, adjustments);
  Dim entries("num_entries", params.num_entries);
  check_column(ctx, "saved", saved, DType::kFloat32, entries);
  params.restored = saved.data<float>();
  if (validating()) {
    check_on_host(
        ctx,
        [&](auto& host) {
          return LogitAdjustments{.indptr = host(adjustments.indptr),
                                  .token_ids = host(adjustments.token_ids)};
        },
        [](const LogitAdjustments& a) { validate_starts(a); });
  }
  if (ctx.device.type == DeviceType::kCpu) {
    for_entries(ctx, params,
                [&params](int64_t, int64_t i, float& logit) { logit = params.restored[i]; });
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("restore_logits");
    cuda::sampling::restore_logits(ctx, params);
  }
}

}  // namespace heddle
