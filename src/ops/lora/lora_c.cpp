#include "heddle/ops/lora.h"

#include <string>
#include <vector>

#include "capi/convert.h"
#include "capi/guard.h"
#include "capi/lora_arguments.h"

using heddle::capi::batch_of;
using heddle::capi::device_of;
using heddle::capi::guard;
using heddle::capi::guard_size;
using heddle::capi::in;
using heddle::capi::in_or_absent;
using heddle::capi::layout_of;
using heddle::capi::out;
using heddle::capi::required;
using heddle::capi::table_of;

namespace {

heddle_status create_table(heddle_context* context, heddle_adapter_table** table, int32_t num_slots,
                           const int64_t* features, int32_t num_slices, int32_t max_rank,
                           DLDataType dtype, heddle_lora_layout layout, heddle::LoraAlignment fit) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle_adapter_table*& result = required("table", table);
    HEDDLE_CHECK(num_slices >= 0, "num_slices is ", num_slices, ", expected at least 1");
    HEDDLE_CHECK(features != nullptr, "features is NULL");
    result = new heddle_adapter_table{{ctx,
                                       num_slots,
                                       {features, size_t(num_slices)},
                                       max_rank,
                                       heddle::dtype_of("dtype", dtype),
                                       layout_of(layout),
                                       fit}};
  });
}

}  // namespace

heddle_status heddle_adapter_table_create(heddle_context* context, heddle_adapter_table** table,
                                          int32_t num_slots, const int64_t* features,
                                          int32_t num_slices, int32_t max_rank, DLDataType dtype,
                                          heddle_lora_layout layout) {
  return create_table(context, table, num_slots, features, num_slices, max_rank, dtype, layout,
                      heddle::LoraAlignment::kNone);
}

heddle_status heddle_adapter_table_create_aligned(heddle_context* context,
                                                  heddle_adapter_table** table, int32_t num_slots,
                                                  const int64_t* features, int32_t num_slices,
                                                  int32_t max_rank, DLDataType dtype,
                                                  heddle_lora_layout layout) {
  return create_table(context, table, num_slots, features, num_slices, max_rank, dtype, layout,
                      heddle::LoraAlignment::k16Bytes);
}

heddle_status heddle_adapter_table_set(heddle_context* context, heddle_adapter_table* table,
                                       int32_t slot, int32_t slice, const DLTensor* weight,
                                       float scale) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    required("table", table).table.set(ctx, slot, slice, in("weight", weight), scale);
  });
}

heddle_status heddle_adapter_table_clear(heddle_context* context, heddle_adapter_table* table,
                                         int32_t slot) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    required("table", table).table.clear(ctx, slot);
  });
}

void heddle_adapter_table_destroy(heddle_adapter_table* table) { delete table; }

void heddle_lora_table_init(heddle_lora_table* table) {
  *table = {.adapters = nullptr,
            .stack = nullptr,
            .pointers = nullptr,
            .layout = HEDDLE_LORA_RANK_MAJOR,
            .dtype = {kDLFloat, 32, 1},
            .rank = 0,
            .features = 0,
            .layer_idx = 0};
}

heddle_status heddle_lora_shrink(heddle_context* context, DLTensor* y, const DLTensor* x,
                                 const DLTensor* a, const heddle_lora_batch* batch, float scale,
                                 bool accumulate, heddle_lora_layout layout) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::lora_shrink(ctx, out("y", y), in("x", x), in("a", a), batch_of(batch), scale,
                        accumulate, layout_of(layout));
  });
}

heddle_status heddle_lora_shrink_table(heddle_context* context, DLTensor* y, const DLTensor* x,
                                       const heddle_lora_table* a, int32_t slice,
                                       const heddle_lora_batch* batch, float scale,
                                       bool accumulate) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::lora_shrink(ctx, out("y", y), in("x", x), table_of("a", a), slice, batch_of(batch),
                        scale, accumulate);
  });
}

heddle_status heddle_lora_expand(heddle_context* context, DLTensor* y, const DLTensor* h,
                                 const DLTensor* b, const heddle_lora_batch* batch,
                                 int64_t slice_offset, float scale, bool accumulate,
                                 heddle_lora_layout layout) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::lora_expand(ctx, out("y", y), in("h", h), in("b", b), batch_of(batch), slice_offset,
                        scale, accumulate, layout_of(layout));
  });
}

heddle_status heddle_lora_expand_table(heddle_context* context, DLTensor* y, const DLTensor* h,
                                       const heddle_lora_table* b, int32_t slice,
                                       int64_t out_features, const heddle_lora_batch* batch,
                                       int64_t slice_offset, float scale, bool accumulate) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::lora_expand(ctx, out("y", y), in("h", h), table_of("b", b), slice, out_features,
                        batch_of(batch), slice_offset, scale, accumulate);
  });
}

heddle_status heddle_lora_apply(heddle_context* context, DLTensor* const* ys, int32_t num_slices,
                                const DLTensor* x, const heddle_lora_table* a,
                                const heddle_lora_table* b, const heddle_lora_batch* batch) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    HEDDLE_CHECK(num_slices >= 0, "num_slices is ", num_slices, ", expected at least 1");
    HEDDLE_CHECK(ys != nullptr, "ys is NULL");
    std::vector<heddle::LoraSlice> slices;
    for (int32_t s = 0; s < num_slices; ++s) {
      slices.push_back({out(("ys[" + std::to_string(s) + "]").c_str(), ys[s])});
    }
    heddle::lora_apply(ctx, slices, in("x", x), table_of("a", a), table_of("b", b),
                       batch_of(batch));
  });
}

size_t heddle_lora_apply_workspace_bytes(DLDevice device, int64_t num_tokens, int64_t in_features,
                                         int32_t num_slices, int32_t max_rank) {
  return guard_size([&] {
    return heddle::lora_apply_workspace_bytes(device_of(device), num_tokens, in_features,
                                              num_slices, max_rank);
  });
}

size_t heddle_lora_pairs_workspace_bytes(DLDevice device, int64_t num_tokens, int64_t in_features,
                                         int64_t out_features, int32_t num_slices,
                                         int32_t max_rank) {
  return guard_size([&] {
    return heddle::lora_pairs_workspace_bytes(device_of(device), num_tokens, in_features,
                                              out_features, num_slices, max_rank);
  });
}

heddle_status heddle_lora_plan(heddle_context* context, DLTensor* plan,
                               const heddle_lora_batch* batch, int64_t num_tokens,
                               int32_t num_slots, int32_t max_rank, const DLTensor* slot_ranks) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::lora_plan(ctx, out("plan", plan), batch_of(batch), num_tokens, num_slots, max_rank,
                      in_or_absent("slot_ranks", slot_ranks));
  });
}

size_t heddle_lora_plan_bytes(int64_t num_tokens, int32_t max_rank) {
  return guard_size([&] { return heddle::lora_plan_bytes(num_tokens, max_rank); });
}
