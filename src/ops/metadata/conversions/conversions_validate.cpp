#include "ops/metadata/conversions/conversions_validate.h"

#include <algorithm>

#include "cpu/validate_indices.h"
#include "ops/metadata/indices.h"

namespace heddle {

void validate_lengths(const char* tensor, const ConstTensorView& lengths) {
  cpu::check_indices(tensor, lengths, 0, kHuge, "longest tensor");
}

void validate_block_tables_to_ragged(const ConstTensorView& ragged,
                                     const ConstTensorView& block_tables,
                                     const ConstTensorView& input_lengths,
                                     const ConstTensorView& cache_lengths) {
  validate_lengths("input_lengths", input_lengths);
  validate_lengths("cache_lengths", cache_lengths);
  const ConstIndexList input(input_lengths), cache(cache_lengths);
  const int64_t width = block_tables.size(1), size = ragged.size(0);
  for (int64_t i = 0, end = 0; i < input.size; ++i) {
    const int64_t length = input[i] + cache[i];
    HEDDLE_CHECK(length <= width, "input_lengths[", i, "] + cache_lengths[", i, "] is ", length,
                 ", expected at most width = ", width);
    end += length;
    HEDDLE_CHECK(end <= size, "input_lengths and cache_lengths up to row ", i, " sum to ", end,
                 ", expected at most the size of ragged = ", size);
  }
}

void validate_block_tables_to_padded(const ConstTensorView& block_tables,
                                     const ConstTensorView& ragged,
                                     const ConstTensorView& cu_seqlens) {
  cpu::check_indptr("cu_seqlens", cu_seqlens, ragged.size(0), "size of ragged");
  const ConstIndexList starts(cu_seqlens);
  const int64_t width = block_tables.size(1);
  for (int64_t i = 0; i + 1 < starts.size; ++i) {
    const int64_t length = starts[i + 1] - starts[i];
    HEDDLE_CHECK(length <= width, "cu_seqlens[", i + 1, "] - cu_seqlens[", i, "] is ", length,
                 ", expected at most width = ", width);
  }
}

void validate_copy_next_input_ids(const ConstTensorView& all_input_ids,
                                  const ConstTensorView& next_input_ids,
                                  const ConstTensorView& cu_accepted_ids,
                                  const ConstTensorView& cache_lengths,
                                  const ConstTensorView& input_lengths,
                                  const ConstTensorView& prompt_lengths) {
  cpu::check_indptr("cu_accepted_ids", cu_accepted_ids, next_input_ids.size(0),
                    "size of next_input_ids");
  validate_lengths("cache_lengths", cache_lengths);
  validate_lengths("input_lengths", input_lengths);
  validate_lengths("prompt_lengths", prompt_lengths);
  const ConstIndexList starts(cu_accepted_ids), cache(cache_lengths), input(input_lengths),
      prompt(prompt_lengths);
  const int64_t max_length = all_input_ids.size(1);
  for (int64_t i = 0; i < cache.size; ++i) {
    const int64_t first = cache[i] + input[i], end = first + starts[i + 1] - starts[i];
    const bool writes = end > std::max(first, prompt[i]);
    HEDDLE_CHECK(!writes || end <= max_length, "cache_lengths[", i, "] + input_lengths[", i,
                 "] is ", first, ", with ", end - first,
                 " ids behind it, expected to end at most at max_length = ", max_length);
  }
}

void validate_prepare_position_slot_ids(const ConstTensorView& position_ids,
                                        const ConstTensorView& slot_indices,
                                        const ConstTensorView& cache_lengths,
                                        const ConstTensorView& cu_seqlens,
                                        const ConstTensorView& cu_slots) {
  validate_lengths("cache_lengths", cache_lengths);
  if (position_ids) {
    cpu::check_indptr("cu_seqlens", cu_seqlens, position_ids.size(0), "size of position_ids");
  }
  if (slot_indices) {
    cpu::check_indptr("cu_seqlens", cu_seqlens, slot_indices.size(0), "size of slot_indices");
    validate_lengths("cu_slots", cu_slots);
  }
}

void validate_slots_filtering(const ConstTensorView& filtered_slots, const ConstTensorView& slots,
                              const ConstTensorView& cu_slots, const ConstTensorView& slots_start) {
  cpu::check_indptr("cu_slots", cu_slots, filtered_slots.size(0), "size of filtered_slots");
  const ConstIndexList starts(cu_slots), from(slots_start);
  for (int64_t i = 0; i < from.size; ++i) {
    const int64_t length = starts[i + 1] - starts[i];
    if (length == 0) continue;
    HEDDLE_CHECK(from[i] >= 0 && from[i] <= slots.size(0) - length, "slots_start[", i, "] is ",
                 from[i], ", with ", length,
                 " slots from there, expected within the size of slots = ", slots.size(0));
  }
}

}  // namespace heddle
