#include "heddle/ops/lora.h"

#include <cstring>

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
}

}  // namespace heddle::python
