#include "ops/lora_device/checks/check_call.h"

#include "heddle/core/check.h"

#include "ops/lora_device/checks/slice_name.h"

namespace heddle {
namespace {

void check_index_vector(const char* tensor, const ConstTensorView& t, Dim& extent) {
  check_shape(tensor, t, {&extent});
  check_dtype(tensor, t, {DType::kInt32, DType::kInt64});
}

void check_factors(const char* tensor, const ConstTensorView& t, Dim& extent) {
  if (!t) return;
  check_shape(tensor, t, {&extent});
  check_dtype(tensor, t, {DType::kFloat32});
  check_unit_stride(tensor, t);
}

void check_pairs(const ExecContext& ctx, const LoraBatch& batch, int64_t num_tokens) {
  HEDDLE_CHECK(batch.pair_starts && batch.pair_slots, "the batch has ",
               batch.pair_starts ? "pair_starts" : "pairs", ", but no ",
               batch.pair_starts ? "pair_slots" : "pair_starts");
  HEDDLE_CHECK(!batch.plan, "the batch has pairs and a plan, but calls with pairs make their own");
  check_device(ctx, {{"pair_starts", batch.pair_starts},
                     {"pair_slots", batch.pair_slots},
                     {"pair_scales", batch.pair_scales}});
  Dim starts("num_tokens + 1", num_tokens + 1), pairs("num_pairs");
  check_index_vector("pair_starts", batch.pair_starts, starts);
  check_index_vector("pair_slots", batch.pair_slots, pairs);
  check_factors("pair_scales", batch.pair_scales, pairs);
  HEDDLE_CHECK(batch.max_pairs || ctx.device.type == DeviceType::kCpu,
               "max_pairs is absent, but pair_starts is on ", ctx.device,
               ", where a call does not look");
  HEDDLE_CHECK(!batch.max_pairs || *batch.max_pairs >= 0, "max_pairs is ", *batch.max_pairs,
               ", expected at least 0");
}

void check_slices(const ExecContext& ctx, std::span<const LoraSlice> slices, Dim& tokens) {
  for (size_t s = 0; s < slices.size(); ++s) {
    const SliceName name(s, ".y");
    const ConstTensorView y = slices[s].y;
    Dim out("out_features");
    check_device(ctx, {{name.c_str(), y}});
    check_shape(name.c_str(), y, {&tokens, &out});
    check_floats(name.c_str(), y);
  }
}

void check_tables(const ExecContext& ctx, const LoraTable& a, const LoraTable& b,
                  std::span<const LoraSlice> slices, int64_t in_features) {
  const int num_slices = static_cast<int>(slices.size());
  check_table(ctx, "a", a);
  check_table(ctx, "b", b);
  HEDDLE_CHECK(a.num_slices == num_slices, "a.num_slices is ", a.num_slices, ", but there are ",
               num_slices, " slices");
  HEDDLE_CHECK(b.num_slices == num_slices, "b.num_slices is ", b.num_slices, ", but there are ",
               num_slices, " slices");
  HEDDLE_CHECK(a.num_slots == b.num_slots, "a.num_slots is ", a.num_slots, ", but b.num_slots is ",
               b.num_slots);
  for (int s = 0; s < num_slices; ++s) {
    const SliceName y(size_t(s), ".y.size(1)");
    check_features("x.size(1)", in_features, "a", a, s);
    check_features(y.c_str(), slices[size_t(s)].y.size(1), "b", b, s);
  }
}

}  // namespace

void check_floats(const char* tensor, const ConstTensorView& t) {
  check_dtype(tensor, t, {DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  check_unit_stride(tensor, t);
}

void check_table(const ExecContext& ctx, const char* name, const LoraTable& table) {
  HEDDLE_CHECK(table.device == ctx.device, name, ".entries is on ", table.device,
               ", the context runs on ", ctx.device);
  HEDDLE_CHECK(table.num_slots >= 0, name, ".num_slots is ", table.num_slots);
  HEDDLE_CHECK(table.num_slices >= 1, name, ".num_slices is ", table.num_slices,
               ", expected at least 1");
  const int addressings =
      int{table.entries != nullptr} + int{table.pointers != nullptr} + int{table.stack != nullptr};
  HEDDLE_CHECK(
      addressings == 1 || table.num_slots == 0, name, " has ", addressings,
      " of entries, pointers and stack, expected one of them for num_slots = ", table.num_slots);
  HEDDLE_CHECK(table.entries != nullptr || table.num_slots == 0 || table.num_slices == 1, name,
               ".num_slices is ", table.num_slices, ", expected 1 without entries");
  HEDDLE_CHECK(table.max_rank >= 0 && table.max_rank <= kMaxLoraRank, name, ".max_rank is ",
               table.max_rank, ", at most ", kMaxLoraRank, " is supported");
  if (table.dtype != DType::kFloat32 && table.dtype != DType::kFloat16 &&
      table.dtype != DType::kBFloat16) {
    throw_error(ErrorCode::kUnsupported, name, " is ", table.dtype, ", supported: f32, f16, bf16");
  }
}

void check_features(const char* extent_name, int64_t extent, const char* name,
                    const LoraTable& table, int slice) {
  HEDDLE_CHECK(table.features == nullptr || table.features[slice] == extent, extent_name, " is ",
               extent, ", expected ", name, ".features[", slice, "] = ", table.features[slice]);
}

void check_batch(const ExecContext& ctx, const LoraBatch& batch, int64_t num_tokens,
                 TakesPairs takes_pairs) {
  check_device(ctx, {{"slot_ids", batch.slot_ids},
                     {"seg_starts", batch.seg_starts},
                     {"seg_ends", batch.seg_ends},
                     {"seg_lens", batch.seg_lens},
                     {"seg_slots", batch.seg_slots},
                     {"row_scale", batch.row_scale}});
  Dim tokens("num_tokens", num_tokens), segments("num_segments");
  const bool has_segments = batch.seg_starts || batch.seg_ends || batch.seg_lens || batch.seg_slots;
  if (batch.pair_starts || batch.pair_slots || batch.pair_scales) {
    HEDDLE_CHECK(takes_pairs == TakesPairs::kYes,
                 "the batch has pairs, which lora_apply alone takes");
    HEDDLE_CHECK(!batch.slot_ids && !has_segments,
                 "the batch has pairs and slot_ids or segments, expected one of them");
    check_pairs(ctx, batch, num_tokens);
  } else if (batch.slot_ids) {
    HEDDLE_CHECK(!has_segments, "the batch has both slot_ids and segments, expected one of them");
    check_index_vector("slot_ids", batch.slot_ids, tokens);
  } else {
    HEDDLE_CHECK(batch.seg_starts, "the batch has neither slot_ids nor segments",
                 takes_pairs == TakesPairs::kYes ? " nor pairs" : "");
    check_index_vector("seg_starts", batch.seg_starts, segments);
    HEDDLE_CHECK(!batch.seg_ends || !batch.seg_lens,
                 "the batch has both seg_ends and seg_lens, expected one of them");
    if (batch.seg_lens) {
      check_index_vector("seg_lens", batch.seg_lens, segments);
    } else {
      check_index_vector("seg_ends", batch.seg_ends, segments);
    }
    if (batch.seg_slots) check_index_vector("seg_slots", batch.seg_slots, segments);
  }
  check_factors("row_scale", batch.row_scale, tokens);
}

void check_apply(const ExecContext& ctx, std::span<const LoraSlice> slices,
                 const ConstTensorView& x, const LoraTable& a, const LoraTable& b,
                 const LoraBatch& batch) {
  Dim tokens("num_tokens"), in("in_features");
  check_device(ctx, {{"x", x}});
  check_shape("x", x, {&tokens, &in});
  check_floats("x", x);
  check_slices(ctx, slices, tokens);
  check_tables(ctx, a, b, slices, in.value());
  check_batch(ctx, batch, tokens.value(), TakesPairs::kYes);
}

}  // namespace heddle
