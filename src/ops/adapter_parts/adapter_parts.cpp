#include "heddle/ops/adapter_parts.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "heddle/config.h"
#include "heddle/core/check.h"
#include "heddle/core/dispatch.h"

#include "core/check_kernels.h"
#include "core/scoped_operation.h"
#include "ops/adapter_parts/adapter_parts_kernels.h"
#include "ops/lora_device/checks/check_call.h"
#include "ops/lora_device/checks/slice_name.h"

namespace heddle {
namespace {

constexpr int64_t kElementsPerTask = 8192;  // some microseconds of work

/// Calls row(t) for rows of `width` elements each, on the threads of the context.
template <class Row>
void for_rows(const ExecContext& ctx, int64_t num_rows, int64_t width, const Row& row) {
  const int64_t grain = std::max<int64_t>(kElementsPerTask / std::max<int64_t>(width, 1), 1);
  parallel_for(ctx, num_rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) row(t);
  });
}

void apply_affine(float* y, int64_t width, const LoraWeight& weight, float scale) {
  const auto* const factor = static_cast<const float*>(weight.data);
  for (int64_t i = 0; i < width; ++i) y[i] *= factor[i];
  if (weight.rank < 2) return;
  const float* const offset = factor + weight.row_stride;
  for (int64_t i = 0; i < width; ++i) y[i] += scale * offset[i];
}

void apply_affines_on_cpu(const ExecContext& ctx, const AffineSlice& s) {
  const bool has_pairs = s.starts.data() != nullptr;
  for_rows(ctx, s.num_tokens, s.width, [&](int64_t t) {
    const int64_t begin = has_pairs ? std::clamp<int64_t>(s.starts[t], 0, s.num_pairs) : t;
    int64_t end = t + 1;
    if (has_pairs) end = std::min({s.starts[t + 1], s.num_pairs, begin + s.max_pairs});
    for (int64_t pair = begin; pair < end; ++pair) {
      const int64_t slot = s.slots[pair];
      if (slot < 0 || slot >= s.num_slots) continue;
      const LoraWeight& weight = s.entries[slot * s.num_slices];
      if (weight.data == nullptr) continue;
      const float pair_scale = s.pair_scales == nullptr ? 1.0f : s.pair_scales[pair];
      apply_affine(s.y + t * s.y_stride, s.width, weight, s.scale * pair_scale);
    }
  });
}

void check_f32(const ExecContext& ctx, const char* name, const ConstTensorView& t, Dim& rows,
               Dim& columns) {
  check_device(ctx, {{name, t}});
  check_shape(name, t, {&rows, &columns});
  check_dtype(name, t, {DType::kFloat32});
  check_unit_stride(name, t);
}

void check_vector(const ExecContext& ctx, const char* name, const ConstTensorView& t, DType dtype,
                  Dim& size) {
  check_device(ctx, {{name, t}});
  check_shape(name, t, {&size});
  check_dtype(name, t, {dtype});
  check_unit_stride(name, t);
}

TokenRows check_token_rows(const ExecContext& ctx, const TensorView& y,
                           const ConstTensorView& token_ids, Dim& width) {
  Dim tokens("num_tokens");
  check_f32(ctx, "y", y, tokens, width);
  check_vector(ctx, "token_ids", token_ids, DType::kInt32, tokens);
  return {.y = y.data<float>(),
          .y_stride = y.stride(0),
          .width = width.value(),
          .num_tokens = tokens.value(),
          .token_ids = token_ids.data<int32_t>()};
}

OwnRows check_own_rows(const ExecContext& ctx, const ConstTensorView& ids,
                       const ConstTensorView& rows, Dim& width) {
  Dim count("num_own");
  check_vector(ctx, "own_ids", ids, DType::kInt32, count);
  check_f32(ctx, "own_rows", rows, count, width);
  return {.ids = ids.data<int32_t>(),
          .rows = rows.data<float>(),
          .stride = rows.stride(0),
          .count = count.value()};
}

template <class T>
void linear_at_on_cpu(const ExecContext& ctx, const OwnProducts& p, const OwnRows& own) {
  for_rows(ctx, p.num_tokens, own.count * p.in_features, [&](int64_t t) {
    const T* const x = reinterpret_cast<const T*>(p.x) + t * p.x_stride;
    for (int64_t j = 0; j < own.count; ++j) {
      if (own.ids[j] < 0 || own.ids[j] >= p.out_features) continue;
      const float* const row = own.rows + j * own.stride;
      float sum = 0;
      for (int64_t k = 0; k < p.in_features; ++k) sum += row[k] * to_float(x[k]);
      p.y[t * p.y_stride + own.ids[j]] = sum;
    }
  });
}

}  // namespace

void apply_affines(const ExecContext& ctx, std::span<const LoraSlice> slices,
                   const LoraTable& affines, const LoraBatch& batch, float scale) {
  check_has_kernels(ctx, "apply_affines");
  check_table(ctx, "affines", affines);
  HEDDLE_CHECK(affines.dtype == DType::kFloat32, "affines is ", affines.dtype, ", expected f32");
  HEDDLE_CHECK(affines.layout == LoraLayout::kRankMajor && affines.max_rank <= 2,
               "affines has max_rank ", affines.max_rank, ", expected at most 2, kRankMajor");
  HEDDLE_CHECK(affines.entries != nullptr || affines.num_slots == 0, "affines has no entries");
  HEDDLE_CHECK(affines.num_slices == std::ssize(slices), "affines.num_slices is ",
               affines.num_slices, ", but there are ", slices.size(), " slices");
  HEDDLE_CHECK(batch.slot_ids || batch.pair_starts, "the batch has neither slot_ids nor pairs");
  HEDDLE_CHECK(!batch.row_scale, "the batch has row_scale, which apply_affines does not take");
  Dim tokens("num_tokens");
  for (size_t s = 0; s < slices.size(); ++s) {
    const SliceName name(s, ".y"), extent(s, ".y.size(1)");
    Dim width("out_features");
    check_f32(ctx, name.c_str(), slices[s].y, tokens, width);
    check_features(extent.c_str(), width.value(), "affines", affines, static_cast<int>(s));
  }
  check_batch(ctx, batch, tokens.value(), TakesPairs::kYes);
  const bool has_pairs = static_cast<bool>(batch.pair_starts);
  const int64_t num_pairs = has_pairs ? batch.pair_slots.size(0) : 0;
  for (size_t s = 0; s < slices.size(); ++s) {
    const TensorView& y = slices[s].y;
    if (y.num_elements() == 0 || affines.num_slots == 0) continue;
    const AffineSlice slice{
        .y = y.data<float>(),
        .y_stride = y.stride(0),
        .width = y.size(1),
        .num_tokens = y.size(0),
        .entries = affines.entries + s,
        .num_slots = affines.num_slots,
        .num_slices = affines.num_slices,
        .slots = cpu::IndexArray(has_pairs ? batch.pair_slots : batch.slot_ids),
        .starts = has_pairs ? cpu::IndexArray(batch.pair_starts) : cpu::IndexArray(),
        .pair_scales = batch.pair_scales ? batch.pair_scales.data<float>() : nullptr,
        .num_pairs = num_pairs,
        .max_pairs = std::min(batch.max_pairs.value_or(num_pairs), num_pairs),
        .scale = scale};
    if (ctx.device.type == DeviceType::kCpu) {
      apply_affines_on_cpu(ctx, slice);
    } else if constexpr (kWithCuda) {
      const ScopedOperation operation("apply_affines");
      cuda::adapter_parts::apply_affines(ctx, slice);
    }
  }
}

void replace_rows(const ExecContext& ctx, TensorView y, ConstTensorView token_ids,
                  ConstTensorView own_ids, ConstTensorView own_rows) {
  check_has_kernels(ctx, "replace_rows");
  Dim width("width");
  const TokenRows rows = check_token_rows(ctx, y, token_ids, width);
  const OwnRows own = check_own_rows(ctx, own_ids, own_rows, width);
  if (y.num_elements() == 0 || own.count == 0) return;
  if (ctx.device.type != DeviceType::kCpu) {
    const ScopedOperation operation("replace_rows");
    if constexpr (kWithCuda) cuda::adapter_parts::replace_rows(ctx, rows, own);
    return;
  }
  const std::span ids(own.ids, static_cast<size_t>(own.count));
  for_rows(ctx, rows.num_tokens, rows.width, [&](int64_t t) {
    const auto found = std::ranges::lower_bound(ids, rows.token_ids[t]);
    if (found == ids.end() || *found != rows.token_ids[t]) return;
    std::copy_n(own.rows + (found - ids.begin()) * own.stride, rows.width,
                rows.y + t * rows.y_stride);
  });
}

void add_low_rank_rows(const ExecContext& ctx, TensorView y, ConstTensorView token_ids,
                       ConstTensorView a, ConstTensorView b, ConstTensorView factor, float scale) {
  check_has_kernels(ctx, "add_low_rank_rows");
  Dim vocab("vocab_size"), rank("rank"), width("width");
  const TokenRows rows = check_token_rows(ctx, y, token_ids, width);
  check_f32(ctx, "a", a, vocab, rank);
  check_f32(ctx, "b", b, rank, width);
  if (factor) check_vector(ctx, "factor", factor, DType::kFloat32, width);
  if (y.num_elements() == 0) return;
  const LowRankRows pair{.a = a.data<float>(),
                         .b = b.data<float>(),
                         .factor = factor ? factor.data<float>() : nullptr,
                         .a_stride = a.stride(0),
                         .b_stride = b.stride(0),
                         .vocab_size = vocab.value(),
                         .rank = rank.value(),
                         .scale = scale};
  if (ctx.device.type != DeviceType::kCpu) {
    const ScopedOperation operation("add_low_rank_rows");
    if constexpr (kWithCuda) cuda::adapter_parts::add_low_rank_rows(ctx, rows, pair);
    return;
  }
  for_rows(ctx, rows.num_tokens, rows.width * (1 + pair.rank), [&](int64_t t) {
    const int64_t token = rows.token_ids[t];
    if (token < 0 || token >= pair.vocab_size) return;
    float* const row = rows.y + t * rows.y_stride;
    for (int64_t r = 0; r < pair.rank; ++r) {
      const float weight = pair.scale * pair.a[token * pair.a_stride + r];
      const float* const values = pair.b + r * pair.b_stride;
      for (int64_t i = 0; i < rows.width; ++i) row[i] += weight * values[i];
    }
    for (int64_t i = 0; pair.factor != nullptr && i < rows.width; ++i) row[i] *= pair.factor[i];
  });
}

void divide_by_lengths(const ExecContext& ctx, TensorView y, ConstTensorView x) {
  check_has_kernels(ctx, "divide_by_lengths");
  Dim count("num_rows"), width("width");
  check_vector(ctx, "y", y, DType::kFloat32, count);
  check_f32(ctx, "x", x, count, width);
  if (count.value() == 0) return;
  const RowLengths rows{.y = y.data<float>(),
                        .x = x.data<float>(),
                        .x_stride = x.stride(0),
                        .num_rows = count.value(),
                        .width = width.value()};
  if (ctx.device.type != DeviceType::kCpu) {
    const ScopedOperation operation("divide_by_lengths");
    if constexpr (kWithCuda) cuda::adapter_parts::divide_by_lengths(ctx, rows);
    return;
  }
  for_rows(ctx, rows.num_rows, rows.width, [&](int64_t i) {
    const float* const row = rows.x + i * rows.x_stride;
    double sum = 0;
    for (int64_t k = 0; k < rows.width; ++k) sum += double{row[k]} * row[k];
    rows.y[i] = static_cast<float>(double{rows.y[i]} / std::sqrt(sum));
  });
}

void linear_at(const ExecContext& ctx, TensorView y, ConstTensorView x, ConstTensorView own_ids,
               ConstTensorView own_rows) {
  check_has_kernels(ctx, "linear_at");
  Dim tokens("num_tokens"), in("in_features"), out("out_features");
  check_f32(ctx, "y", y, tokens, out);
  check_device(ctx, {{"x", x}});
  check_shape("x", x, {&tokens, &in});
  check_floats("x", x);
  const OwnRows own = check_own_rows(ctx, own_ids, own_rows, in);
  if (y.num_elements() == 0 || own.count == 0) return;
  const OwnProducts products{.y = y.data<float>(),
                             .x = x.raw(),
                             .y_stride = y.stride(0),
                             .x_stride = x.stride(0),
                             .num_tokens = tokens.value(),
                             .in_features = in.value(),
                             .out_features = out.value()};
  if (ctx.device.type != DeviceType::kCpu) {
    const ScopedOperation operation("linear_at");
    if constexpr (kWithCuda) cuda::adapter_parts::linear_at(ctx, products, own, x.dtype());
    return;
  }
  dispatch_dtype<float, half, bfloat16>(
      x.dtype(), "linear_at", [&]<class T>() { linear_at_on_cpu<T>(ctx, products, own); });
}

}  // namespace heddle
