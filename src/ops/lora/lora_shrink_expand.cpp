#include "heddle/core/validate.h"
#include "heddle/ops/lora.h"

#include "ops/lora/run/run_on_gpu.h"
#include "ops/lora_device/checks/check_call.h"
#include "ops/lora_device/checks/validate.h"
#include "ops/lora_device/cpu/product.h"

namespace heddle {
namespace {

void check_rank(const char* tensor, int axis, int64_t rank) {
  HEDDLE_CHECK(rank <= kMaxLoraRank, tensor, ".size(", axis, ") is rank = ", rank, ", at most ",
               kMaxLoraRank, " is supported");
}

void check_slice(const char* name, const LoraTable& table, int slice) {
  HEDDLE_CHECK(slice >= 0 && slice < table.num_slices, "slice is ", slice, ", but ", name,
               ".num_slices is ", table.num_slices);
}

/// y and the input are the call's own tensors; p holds its weights. One slice, columns of y from
/// `column` on.
void run_window(const ExecContext& ctx, LoraProduct p, const RowGroups& groups, int64_t first,
                const LoraBatch& batch, const TensorView& y, int64_t column, int64_t width,
                const ConstTensorView& input) {
  use_rows(p, groups, first, input, batch);
  LoraProductSlice slice = product_slice(y, first, column, width);
  run_product(ctx, p, {&slice, 1});
}

/// The rows of y and the input agree, and y has the columns that the call writes.
void check_rows(const ExecContext& ctx, Dim& tokens, const TensorView& y, const char* input_name,
                const ConstTensorView& input, const LoraBatch& batch) {
  check_device(ctx, {{"y", y}, {input_name, input}});
  Dim y_columns("the columns of y"), input_columns("the columns of its rows");
  check_shape(input_name, input, {&tokens, &input_columns});
  check_shape("y", y, {&tokens, &y_columns});
  check_floats("y", y);
  check_floats(input_name, input);
  check_batch(ctx, batch, tokens.value());
}

void check_slice_columns(const TensorView& y, int64_t slice_offset, int64_t out_features) {
  HEDDLE_CHECK(out_features >= 0, "out_features is ", out_features);
  HEDDLE_CHECK(slice_offset >= 0 && slice_offset <= y.size(1) - out_features, "y.size(1) is ",
               y.size(1), ", expected at least slice_offset + out_features = ", slice_offset, " + ",
               out_features);
}

void shrink_on_gpu(const ExecContext& ctx, const TensorView& y, const ConstTensorView& x,
                   const LoraTable& a, int slice, const LoraBatch& batch, float scale,
                   bool accumulate) {
  if (y.num_elements() == 0 || a.max_rank == 0) return;
  const LoraSlice out{y};
  const LoraSite site{.slices = {&out, 1},
                      .input = x,
                      .a = &a,
                      .first_slice = slice,
                      .scale = scale,
                      .accumulate = accumulate};
  run_on_gpu(ctx, "lora_shrink", site, batch);
}

void expand_on_gpu(const ExecContext& ctx, const TensorView& y, const ConstTensorView& h,
                   const LoraTable& b, int slice, const LoraBatch& batch, float scale,
                   bool accumulate) {
  if (y.num_elements() == 0 || b.max_rank == 0) return;
  const LoraSlice out{y};
  const LoraSite site{.slices = {&out, 1},
                      .input = h,
                      .b = &b,
                      .first_slice = slice,
                      .scale = scale,
                      .accumulate = accumulate};
  run_on_gpu(ctx, "lora_expand", site, batch);
}

}  // namespace

void lora_shrink(const ExecContext& ctx, TensorView y, ConstTensorView x, ConstTensorView a,
                 const LoraBatch& batch, float scale, bool accumulate, LoraLayout layout) {
  Dim tokens("num_tokens"), slots("num_slots"), rank("rank"), in("in_features");
  check_rows(ctx, tokens, y, "x", x, batch);
  check_device(ctx, {{"a", a}});
  const bool rank_major = layout == LoraLayout::kRankMajor;
  check_shape("x", x, {&tokens, &in});
  check_shape("a", a, {&slots, rank_major ? &rank : &in, rank_major ? &in : &rank});
  check_shape("y", y, {&tokens, &rank});
  check_floats("a", a);
  check_rank("a", rank_major ? 1 : 2, rank.value());
  if (y.num_elements() == 0 || a.num_elements() == 0) return;

  const LoraTable table = LoraTable::from_stack(a, layout);
  if (ctx.device.type == DeviceType::kCuda) {
    return shrink_on_gpu(ctx, y, x, table, 0, batch, scale, accumulate);
  }
  LoraProduct p{
      .features = in.value(), .scale = scale, .is_shrink = true, .accumulate = accumulate};
  use_table(p, table, 0);
  if (validating()) validate_batch(batch, tokens.value(), "a", p.weights);
  for_each_window(batch, tokens.value(), slots.value(),
                  [&](const RowGroups& groups, int64_t first) {
                    run_window(ctx, p, groups, first, batch, y, 0, rank.value(), x);
                  });
}

void lora_shrink(const ExecContext& ctx, TensorView y, ConstTensorView x, const LoraTable& a,
                 int slice, const LoraBatch& batch, float scale, bool accumulate) {
  Dim tokens("num_tokens");
  check_rows(ctx, tokens, y, "x", x, batch);
  check_table(ctx, "a", a);
  check_slice("a", a, slice);
  check_features("x.size(1)", x.size(1), "a", a, slice);
  if (x.num_elements() == 0) return;
  if (ctx.device.type == DeviceType::kCuda) {
    return shrink_on_gpu(ctx, y, x, a, slice, batch, scale, accumulate);
  }

  LoraProduct p{.features = x.size(1), .scale = scale, .is_shrink = true, .accumulate = accumulate};
  use_table(p, a, slice);
  if (validating()) validate_batch(batch, tokens.value(), "a", a);
  for_each_window(batch, tokens.value(), a.num_slots, [&](const RowGroups& groups, int64_t first) {
    check_used_ranks(groups, "a", a, slice, 1, "y.size(1)", y.size(1));
    run_window(ctx, p, groups, first, batch, y, 0, std::min<int64_t>(a.max_rank, y.size(1)), x);
  });
}

void lora_expand(const ExecContext& ctx, TensorView y, ConstTensorView h, ConstTensorView b,
                 const LoraBatch& batch, int64_t slice_offset, float scale, bool accumulate,
                 LoraLayout layout) {
  Dim tokens("num_tokens"), slots("num_slots"), rank("rank"), out("out_features");
  check_rows(ctx, tokens, y, "h", h, batch);
  check_device(ctx, {{"b", b}});
  const bool rank_major = layout == LoraLayout::kRankMajor;
  check_shape("h", h, {&tokens, &rank});
  check_shape("b", b, {&slots, rank_major ? &rank : &out, rank_major ? &out : &rank});
  check_floats("b", b);
  check_rank("b", rank_major ? 1 : 2, rank.value());
  check_slice_columns(y, slice_offset, out.value());
  if (b.num_elements() == 0) return;
  const LoraTable table = LoraTable::from_stack(b, layout);
  if (ctx.device.type == DeviceType::kCuda) {
    return expand_on_gpu(ctx, y.narrow(1, slice_offset, out.value()), h, table, 0, batch, scale,
                         accumulate);
  }

  LoraProduct p{.scale = scale, .accumulate = accumulate};
  use_table(p, table, 0);
  if (validating()) validate_batch(batch, tokens.value(), "b", p.weights);
  for_each_window(batch, tokens.value(), slots.value(),
                  [&](const RowGroups& groups, int64_t first) {
                    run_window(ctx, p, groups, first, batch, y, slice_offset, out.value(), h);
                  });
}

void lora_expand(const ExecContext& ctx, TensorView y, ConstTensorView h, const LoraTable& b,
                 int slice, int64_t out_features, const LoraBatch& batch, int64_t slice_offset,
                 float scale, bool accumulate) {
  Dim tokens("num_tokens");
  check_rows(ctx, tokens, y, "h", h, batch);
  check_table(ctx, "b", b);
  check_slice("b", b, slice);
  check_features("out_features", out_features, "b", b, slice);
  check_slice_columns(y, slice_offset, out_features);
  if (out_features == 0) return;
  if (ctx.device.type == DeviceType::kCuda) {
    return expand_on_gpu(ctx, y.narrow(1, slice_offset, out_features), h, b, slice, batch, scale,
                         accumulate);
  }

  LoraProduct p{.scale = scale, .accumulate = accumulate};
  use_table(p, b, slice);
  if (validating()) validate_batch(batch, tokens.value(), "b", b);
  for_each_window(batch, tokens.value(), b.num_slots, [&](const RowGroups& groups, int64_t first) {
    check_used_ranks(groups, "b", b, slice, 1, "h.size(1)", h.size(1));
    run_window(ctx, p, groups, first, batch, y, slice_offset, out_features, h);
  });
}

}  // namespace heddle
