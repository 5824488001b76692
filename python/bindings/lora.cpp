#include "heddle/ops/lora.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "call.h"
#include "families.h"

namespace heddle::python {
namespace {

using namespace nb::literals;

LoraBatch batch_of(Call& call, nb::handle slot_ids, nb::handle seg_starts, nb::handle seg_ends,
                   nb::handle seg_slots, nb::handle row_scale) {
  return {.slot_ids = call.optional_in("slot_ids", slot_ids),
          .seg_starts = call.optional_in("seg_starts", seg_starts),
          .seg_ends = call.optional_in("seg_ends", seg_ends),
          .seg_slots = call.optional_in("seg_slots", seg_slots),
          .row_scale = call.optional_in("row_scale", row_scale)};
}

LoraLayout layout_of(const char* name) {
  if (std::strcmp(name, "rank_major") == 0) return LoraLayout::kRankMajor;
  HEDDLE_CHECK(std::strcmp(name, "rank_minor") == 0, "layout is \"", name,
               "\", expected \"rank_major\" or \"rank_minor\"");
  return LoraLayout::kRankMinor;
}

void shrink(nb::handle y, nb::handle x, nb::handle a, nb::handle slot_ids, nb::handle seg_starts,
            nb::handle seg_ends, nb::handle seg_slots, nb::handle row_scale, float scale,
            bool accumulate, const char* layout) {
  Call call;
  const TensorView out = call.out("y", y);
  const ConstTensorView in = call.in("x", x), weights = call.in("a", a);
  const LoraBatch batch = batch_of(call, slot_ids, seg_starts, seg_ends, seg_slots, row_scale);
  const LoraLayout axes = layout_of(layout);
  call.run([&](const ExecContext& ctx) {
    lora_shrink(ctx, out, in, weights, batch, scale, accumulate, axes);
  });
}

void expand(nb::handle y, nb::handle h, nb::handle b, nb::handle slot_ids, nb::handle seg_starts,
            nb::handle seg_ends, nb::handle seg_slots, nb::handle row_scale, int64_t slice_offset,
            float scale, bool accumulate, const char* layout) {
  Call call;
  const TensorView out = call.out("y", y);
  const ConstTensorView in = call.in("h", h), weights = call.in("b", b);
  const LoraBatch batch = batch_of(call, slot_ids, seg_starts, seg_ends, seg_slots, row_scale);
  const LoraLayout axes = layout_of(layout);
  call.run([&](const ExecContext& ctx) {
    lora_expand(ctx, out, in, weights, batch, slice_offset, scale, accumulate, axes);
  });
}

/// The dtype of weights that are known by address alone: as told, else that of the model, which x has, or y where x is the f32
/// sums between shrink and expand.
DType weight_dtype_of(const std::optional<std::string>& name, DType x, DType y) {
  if (!name) return x == DType::kFloat32 ? y : x;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    if (*name == heddle::name(dtype)) return dtype;
  }
  throw_error(ErrorCode::kUnsupported, "weight_dtype is \"", *name,
              "\", supported: f32, f16, bf16");
}

void shrink_pointers(nb::handle y, nb::handle x, nb::handle pointers, nb::handle slot_ids,
                     nb::handle seg_starts, nb::handle seg_ends, nb::handle seg_slots,
                     nb::handle row_scale, float scale, bool accumulate, const char* layout,
                     int64_t layer_idx, const std::optional<std::string>& weight_dtype) {
  Call call;
  const TensorView out = call.out("y", y);
  const ConstTensorView in = call.in("x", x), addresses = call.in("pointers", pointers);
  const LoraBatch batch = batch_of(call, slot_ids, seg_starts, seg_ends, seg_slots, row_scale);
  HEDDLE_CHECK(out.rank() == 2, "y has rank ", out.rank(), ", expected 2");
  HEDDLE_CHECK(in.rank() == 2, "x has rank ", in.rank(), ", expected 2");
  LoraTable table =
      LoraTable::from_pointers(addresses, weight_dtype_of(weight_dtype, in.dtype(), out.dtype()),
                               layout_of(layout), out.size(1), in.size(1), layer_idx);
  call.run([&](const ExecContext& ctx) {
    // Ranks beyond the kernels' limit are taken in parts: a rank is a column of y, and does not know the others.
    const int64_t step = table.layout == LoraLayout::kRankMajor ? in.size(1) : 1;
    const int64_t layer = table.element_offset;
    int64_t first = 0;
    do {
      const int64_t part = std::min<int64_t>(out.size(1) - first, kMaxLoraRank);
      table.max_rank = static_cast<int32_t>(part);
      table.element_offset = layer + first * step;
      lora_shrink(ctx, out.narrow(1, first, part), in, table, 0, batch, scale, accumulate);
      first += part;
    } while (first < out.size(1));
  });
}

void expand_pointers(nb::handle y, nb::handle h, nb::handle pointers, nb::handle slot_ids,
                     nb::handle seg_starts, nb::handle seg_ends, nb::handle seg_slots,
                     nb::handle row_scale, int64_t slice_offset,
                     std::optional<int64_t> out_features, float scale, bool accumulate,
                     const char* layout, int64_t layer_idx,
                     const std::optional<std::string>& weight_dtype) {
  Call call;
  const TensorView out = call.out("y", y);
  const ConstTensorView in = call.in("h", h), addresses = call.in("pointers", pointers);
  const LoraBatch batch = batch_of(call, slot_ids, seg_starts, seg_ends, seg_slots, row_scale);
  HEDDLE_CHECK(out.rank() == 2, "y has rank ", out.rank(), ", expected 2");
  HEDDLE_CHECK(in.rank() == 2, "h has rank ", in.rank(), ", expected 2");
  const int64_t features = out_features.value_or(out.size(1) - slice_offset);
  const LoraTable table =
      LoraTable::from_pointers(addresses, weight_dtype_of(weight_dtype, in.dtype(), out.dtype()),
                               layout_of(layout), in.size(1), features, layer_idx);
  call.run([&](const ExecContext& ctx) {
    lora_expand(ctx, out, in, table, 0, features, batch, slice_offset, scale, accumulate);
  });
}

}  // namespace

void bind_lora(nb::module_& m) {
  m.attr("MAX_LORA_RANK") = kMaxLoraRank;
  m.def("lora_shrink", &shrink, "y"_a, "x"_a, "a"_a, nb::kw_only(), "slot_ids"_a = nb::none(),
        "seg_starts"_a = nb::none(), "seg_ends"_a = nb::none(), "seg_slots"_a = nb::none(),
        "row_scale"_a = nb::none(), "scale"_a = 1.0f, "accumulate"_a = false,
        "layout"_a = "rank_major");
  m.def("lora_expand", &expand, "y"_a, "h"_a, "b"_a, nb::kw_only(), "slot_ids"_a = nb::none(),
        "seg_starts"_a = nb::none(), "seg_ends"_a = nb::none(), "seg_slots"_a = nb::none(),
        "row_scale"_a = nb::none(), "slice_offset"_a = 0, "scale"_a = 1.0f, "accumulate"_a = true,
        "layout"_a = "rank_minor");
  m.def("lora_shrink_pointers", &shrink_pointers, "y"_a, "x"_a, "pointers"_a, nb::kw_only(),
        "slot_ids"_a = nb::none(), "seg_starts"_a = nb::none(), "seg_ends"_a = nb::none(),
        "seg_slots"_a = nb::none(), "row_scale"_a = nb::none(), "scale"_a = 1.0f,
        "accumulate"_a = false, "layout"_a = "rank_major", "layer_idx"_a = 0,
        "weight_dtype"_a = nb::none());
  m.def("lora_expand_pointers", &expand_pointers, "y"_a, "h"_a, "pointers"_a, nb::kw_only(),
        "slot_ids"_a = nb::none(), "seg_starts"_a = nb::none(), "seg_ends"_a = nb::none(),
        "seg_slots"_a = nb::none(), "row_scale"_a = nb::none(), "slice_offset"_a = 0,
        "out_features"_a = nb::none(), "scale"_a = 1.0f, "accumulate"_a = true,
        "layout"_a = "rank_minor", "layer_idx"_a = 0, "weight_dtype"_a = nb::none());
}

}  // namespace heddle::python
