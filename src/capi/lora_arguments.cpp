#include "capi/lora_arguments.h"

#include <optional>
#include <string>

namespace heddle::capi {

LoraLayout layout_of(heddle_lora_layout layout) {
  switch (layout) {
    case HEDDLE_LORA_RANK_MAJOR: return LoraLayout::kRankMajor;
    case HEDDLE_LORA_RANK_MINOR: return LoraLayout::kRankMinor;
  }
  throw_error(ErrorCode::kInvalidArgument, "layout is ", layout,
              ", expected HEDDLE_LORA_RANK_MAJOR or HEDDLE_LORA_RANK_MINOR");
}

LoraBatch batch_of(const heddle_lora_batch* batch) {
  const heddle_lora_batch& b = required("batch", batch);
  return {.slot_ids = in_or_absent("slot_ids", b.slot_ids),
          .seg_starts = in_or_absent("seg_starts", b.seg_starts),
          .seg_ends = in_or_absent("seg_ends", b.seg_ends),
          .seg_slots = in_or_absent("seg_slots", b.seg_slots),
          .row_scale = in_or_absent("row_scale", b.row_scale),
          .plan = in_or_absent("plan", b.plan),
          .pair_starts = in_or_absent("pair_starts", b.pair_starts),
          .pair_slots = in_or_absent("pair_slots", b.pair_slots),
          .pair_scales = in_or_absent("pair_scales", b.pair_scales),
          .max_pairs = b.max_pairs != nullptr ? std::optional(*b.max_pairs) : std::nullopt};
}

LoraTable table_of(const char* name, const heddle_lora_table* table) {
  const heddle_lora_table& t = required(name, table);
  const int addressings =
      int{t.adapters != nullptr} + int{t.stack != nullptr} + int{t.pointers != nullptr};
  HEDDLE_CHECK(addressings == 1, name, " has ", addressings,
               " of adapters, stack and pointers, expected one of them");
  if (t.adapters != nullptr) return t.adapters->table.view();
  if (t.stack != nullptr) {
    return LoraTable::from_stack(in((std::string(name) + ".stack").c_str(), t.stack),
                                 layout_of(t.layout));
  }
  return LoraTable::from_pointers(in((std::string(name) + ".pointers").c_str(), t.pointers),
                                  dtype_of("the weights", t.dtype), layout_of(t.layout), t.rank,
                                  t.features, t.layer_idx);
}

}  // namespace heddle::capi
