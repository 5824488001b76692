#include "ops/lora_device/checks/validate.h"

#include <algorithm>
#include <vector>

#include "cpu/index_array.h"
#include "cpu/validate_indices.h"
#include "ops/lora_device/checks/segment_ends.h"

namespace heddle {
namespace {

/// Entries without weights are adapters that do not touch the slice; an address of 0 is a mistake
/// where its slot is used.
void validate_slot(const char* tensor, int64_t row, int64_t slot, const char* name,
                   const LoraTable& table) {
  cpu::check_index(tensor, row, slot, cpu::kAnyNegative, table.num_slots, "num_slots");
  if (slot < 0 || table.pointers == nullptr) return;
  HEDDLE_CHECK(table.weight(slot, 0).data != nullptr, tensor, "[", row, "] is ", slot, ", but ",
               name, ".pointers[", slot, "] is null");
}

struct Segment {
  int64_t start, end, index;
};

void validate_segments(const LoraBatch& batch, int64_t num_tokens, const char* name,
                       const LoraTable& table) {
  const cpu::IndexArray starts(batch.seg_starts), slots(batch.seg_slots);
  const SegmentEnds ends(batch);
  std::vector<Segment> segments;
  for (int64_t s = 0; s < batch.seg_starts.size(0); ++s) {
    if (ends[s] <= starts[s]) continue;  // empty, whatever its slot
    cpu::check_index("seg_starts", s, starts[s], 0, num_tokens, "num_tokens");
    HEDDLE_CHECK(ends[s] <= num_tokens, ends.name(), s, "] is ", ends[s],
                 ", expected at most num_tokens = ", num_tokens);
    validate_slot("seg_slots", s, batch.seg_slots ? slots[s] : s, name, table);
    segments.push_back({starts[s], ends[s], s});
  }
  std::sort(segments.begin(), segments.end(), [](const Segment& a, const Segment& b) {
    return a.start != b.start ? a.start < b.start : a.index < b.index;
  });
  for (size_t i = 1; i < segments.size(); ++i) {
    const Segment &before = segments[i - 1], &segment = segments[i];
    HEDDLE_CHECK(segment.start >= before.end, "seg_starts[", segment.index, "] is ", segment.start,
                 ", expected at least ", ends.name(), before.index, "] = ", before.end,
                 ": segments overlap");
  }
}

void validate_pairs(const LoraBatch& batch, int64_t num_tokens, const char* name,
                    const LoraTable& table) {
  const cpu::IndexArray starts(batch.pair_starts), slots(batch.pair_slots);
  HEDDLE_CHECK(starts[0] == 0, "pair_starts[0] is ", starts[0], ", expected 0");
  cpu::check_indptr("pair_starts", batch.pair_starts, batch.pair_slots.size(0), "num_pairs");
  for (int64_t t = 0; batch.max_pairs && t < num_tokens; ++t) {
    const int64_t limit = starts[t] + *batch.max_pairs;
    HEDDLE_CHECK(starts[t + 1] <= limit, "pair_starts[", t + 1, "] is ", starts[t + 1],
                 ", expected at most pair_starts[", t, "] + max_pairs = ", limit);
  }
  for (int64_t p = 0; p < starts[num_tokens]; ++p) {
    validate_slot("pair_slots", p, slots[p], name, table);
  }
}

}  // namespace

void validate_batch(const LoraBatch& batch, int64_t num_tokens, const char* name,
                    const LoraTable& table) {
  if (batch.pair_starts) return validate_pairs(batch, num_tokens, name, table);
  if (!batch.slot_ids) return validate_segments(batch, num_tokens, name, table);
  const cpu::IndexArray ids(batch.slot_ids);
  for (int64_t t = 0; t < num_tokens; ++t) validate_slot("slot_ids", t, ids[t], name, table);
}

}  // namespace heddle
