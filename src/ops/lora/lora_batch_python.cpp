#include "ops/lora/lora_batch_python.h"

#include <nanobind/stl/optional.h>

#include "bindings/tuples.h"

namespace heddle::python {

LoraBatch batch_of(Call& call, nb::handle batch) {
  static constinit TupleType type("LoraBatch");
  TupleFields fields("batch", batch, type);
  return {.slot_ids = call.optional_in("slot_ids", fields.next()),
          .seg_starts = call.optional_in("seg_starts", fields.next()),
          .seg_ends = call.optional_in("seg_ends", fields.next()),
          .seg_slots = call.optional_in("seg_slots", fields.next()),
          .row_scale = call.optional_in("row_scale", fields.next()),
          .plan = call.optional_in("plan", fields.next()),
          .pair_starts = call.optional_in("pair_starts", fields.next()),
          .pair_slots = call.optional_in("pair_slots", fields.next()),
          .pair_scales = call.optional_in("pair_scales", fields.next()),
          .max_pairs = fields.next<std::optional<int64_t>>("max_pairs"),
          .seg_lens = call.optional_in("seg_lens", fields.next())};
}

}  // namespace heddle::python
