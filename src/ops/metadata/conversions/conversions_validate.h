#pragma once

#include "heddle/core/tensor_view.h"

namespace heddle {

// What the conversions do where validating(): throw, with tensor, row and value, at an entry that
// they would skip, a length below 0 and a start that descends. The tensors have passed the checks
// of the op and lie in host memory.

void validate_block_tables_to_ragged(const ConstTensorView& ragged,
                                     const ConstTensorView& block_tables,
                                     const ConstTensorView& input_lengths,
                                     const ConstTensorView& cache_lengths);
void validate_block_tables_to_padded(const ConstTensorView& block_tables,
                                     const ConstTensorView& ragged,
                                     const ConstTensorView& cu_seqlens);
void validate_copy_next_input_ids(const ConstTensorView& all_input_ids,
                                  const ConstTensorView& next_input_ids,
                                  const ConstTensorView& cu_accepted_ids,
                                  const ConstTensorView& cache_lengths,
                                  const ConstTensorView& input_lengths,
                                  const ConstTensorView& prompt_lengths);
void validate_prepare_position_slot_ids(const ConstTensorView& position_ids,
                                        const ConstTensorView& slot_indices,
                                        const ConstTensorView& cache_lengths,
                                        const ConstTensorView& cu_seqlens,
                                        const ConstTensorView& cu_slots);
void validate_slots_filtering(const ConstTensorView& filtered_slots, const ConstTensorView& slots,
                              const ConstTensorView& cu_slots, const ConstTensorView& slots_start);

/// Every element is at least 0: "cache_lengths[3] is -1, expected at least 0".
void validate_lengths(const char* tensor, const ConstTensorView& lengths);

}  // namespace heddle
