#include "heddle/core/validate.h"
#include "heddle/ops/metadata.h"

#include "core/scoped_operation.h"
#include "ops/metadata/checks.h"
#include "ops/metadata/conversions/conversions_kernels.h"
#include "ops/metadata/conversions/conversions_validate.h"

namespace heddle {
namespace {

Fill fill_of(const std::optional<int64_t>& value) {
  return {.on = value.has_value(), .value = value.value_or(0)};
}

}  // namespace

void block_tables_to_ragged(const ExecContext& ctx, TensorView ragged, ConstTensorView block_tables,
                            ConstTensorView input_lengths, ConstTensorView cache_lengths,
                            std::optional<int64_t> fill_value, std::optional<int64_t> total) {
  check_kernels(ctx, "block_tables_to_ragged");
  Dim size("size"), seqs("num_seqs"), width("width");
  check_index_tensor(ctx, "ragged", ragged, {&size});
  check_index_tensor(ctx, "block_tables", block_tables, {&seqs, &width});
  check_index_tensor(ctx, "input_lengths", input_lengths, {&seqs});
  check_index_tensor(ctx, "cache_lengths", cache_lengths, {&seqs});
  const BlockTablesToRaggedParams p{.ragged = IndexList(ragged),
                                    .block_tables = ConstIndexTable(block_tables),
                                    .input_lengths = ConstIndexList(input_lengths),
                                    .cache_lengths = ConstIndexList(cache_lengths),
                                    .num_seqs = seqs.value(),
                                    .fill = fill_of(fill_value)};
  const auto check_total = [&] {
    if (!total.has_value()) return;
    const int64_t sum =
        cpu::metadata::total_length(ConstIndexList(input_lengths), ConstIndexList(cache_lengths));
    HEDDLE_CHECK(sum == *total, "input_lengths and cache_lengths sum to ", sum,
                 ", expected total = ", *total);
  };
  if (ctx.device.type == DeviceType::kCpu) check_total();  // a GPU call does not wait for the sum
  if (validating()) {
    check_on_host(ctx, {&input_lengths, &cache_lengths}, [&] {
      check_total();
      validate_block_tables_to_ragged(ragged, block_tables, input_lengths, cache_lengths);
    });
  }
  if (ctx.device.type == DeviceType::kCpu) {
    cpu::metadata::block_tables_to_ragged(ctx, p);
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("block_tables_to_ragged");
    cuda::metadata::block_tables_to_ragged(ctx, p);
  }
}

void block_tables_to_padded(const ExecContext& ctx, TensorView block_tables, ConstTensorView ragged,
                            ConstTensorView cu_seqlens, std::optional<int64_t> fill_value) {
  check_kernels(ctx, "block_tables_to_padded");
  Dim seqs("num_seqs"), width("width"), size("size");
  check_index_tensor(ctx, "block_tables", block_tables, {&seqs, &width});
  check_index_tensor(ctx, "ragged", ragged, {&size});
  Dim starts("num_seqs + 1", seqs.value() + 1);
  check_index_tensor(ctx, "cu_seqlens", cu_seqlens, {&starts});
  const BlockTablesToPaddedParams p{.block_tables = IndexTable(block_tables),
                                    .ragged = ConstIndexList(ragged),
                                    .cu_seqlens = ConstIndexList(cu_seqlens),
                                    .num_seqs = seqs.value(),
                                    .fill = fill_of(fill_value)};
  if (validating()) {
    check_on_host(ctx, {&cu_seqlens},
                  [&] { validate_block_tables_to_padded(block_tables, ragged, cu_seqlens); });
  }
  if (ctx.device.type == DeviceType::kCpu) {
    cpu::metadata::block_tables_to_padded(ctx, p);
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("block_tables_to_padded");
    cuda::metadata::block_tables_to_padded(ctx, p);
  }
}

void copy_next_input_ids_inplace(const ExecContext& ctx, TensorView all_input_ids,
                                 ConstTensorView next_input_ids, ConstTensorView cu_accepted_ids,
                                 ConstTensorView cache_lengths, ConstTensorView input_lengths,
                                 ConstTensorView prompt_lengths) {
  check_kernels(ctx, "copy_next_input_ids_inplace");
  Dim seqs("num_seqs"), max_length("max_length"), size("size");
  check_index_tensor(ctx, "all_input_ids", all_input_ids, {&seqs, &max_length});
  check_index_tensor(ctx, "next_input_ids", next_input_ids, {&size});
  Dim starts("num_seqs + 1", seqs.value() + 1);
  check_index_tensor(ctx, "cu_accepted_ids", cu_accepted_ids, {&starts});
  check_index_tensor(ctx, "cache_lengths", cache_lengths, {&seqs});
  check_index_tensor(ctx, "input_lengths", input_lengths, {&seqs});
  check_index_tensor(ctx, "prompt_lengths", prompt_lengths, {&seqs});
  const CopyNextInputIdsParams p{.all_input_ids = IndexTable(all_input_ids),
                                 .next_input_ids = ConstIndexList(next_input_ids),
                                 .cu_accepted_ids = ConstIndexList(cu_accepted_ids),
                                 .cache_lengths = ConstIndexList(cache_lengths),
                                 .input_lengths = ConstIndexList(input_lengths),
                                 .prompt_lengths = ConstIndexList(prompt_lengths),
                                 .num_seqs = seqs.value()};
  if (validating()) {
    check_on_host(ctx, {&cu_accepted_ids, &cache_lengths, &input_lengths, &prompt_lengths}, [&] {
      validate_copy_next_input_ids(all_input_ids, next_input_ids, cu_accepted_ids, cache_lengths,
                                   input_lengths, prompt_lengths);
    });
  }
  if (ctx.device.type == DeviceType::kCpu) {
    cpu::metadata::copy_next_input_ids(ctx, p);
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("copy_next_input_ids_inplace");
    cuda::metadata::copy_next_input_ids(ctx, p);
  }
}

void prepare_position_slot_ids(const ExecContext& ctx, TensorView position_ids,
                               TensorView slot_indices, ConstTensorView cache_lengths,
                               ConstTensorView cu_seqlens, ConstTensorView cu_slots) {
  check_kernels(ctx, "prepare_position_slot_ids");
  Dim positions("size"), slots("size"), seqs("num_seqs");
  check_optional_index_tensor(ctx, "position_ids", position_ids, {&positions});
  check_optional_index_tensor(ctx, "slot_indices", slot_indices, {&slots});
  check_index_tensor(ctx, "cache_lengths", cache_lengths, {&seqs});
  Dim starts("num_seqs + 1", seqs.value() + 1);
  check_index_tensor(ctx, "cu_seqlens", cu_seqlens, {&starts});
  if (slot_indices || cu_slots) {  // the original reads no more than num_seqs entries of cu_slots
    const bool without_end = cu_slots.rank() == 1 && cu_slots.size(0) == seqs.value();
    check_index_tensor(ctx, "cu_slots", cu_slots, {without_end ? &seqs : &starts});
  }
  const PositionSlotIdsParams p{.position_ids = IndexList(position_ids),
                                .slot_indices = IndexList(slot_indices),
                                .cache_lengths = ConstIndexList(cache_lengths),
                                .cu_seqlens = ConstIndexList(cu_seqlens),
                                .cu_slots = ConstIndexList(cu_slots),
                                .num_seqs = seqs.value()};
  if (validating()) {
    check_on_host(ctx, {&cache_lengths, &cu_seqlens, &cu_slots}, [&] {
      validate_prepare_position_slot_ids(position_ids, slot_indices, cache_lengths, cu_seqlens,
                                         cu_slots);
    });
  }
  if (ctx.device.type == DeviceType::kCpu) {
    cpu::metadata::prepare_position_slot_ids(ctx, p);
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("prepare_position_slot_ids");
    cuda::metadata::prepare_position_slot_ids(ctx, p);
  }
}

void slots_filtering(const ExecContext& ctx, TensorView filtered_slots, ConstTensorView slots,
                     ConstTensorView cu_slots, ConstTensorView slots_start,
                     std::optional<int64_t> fill_value) {
  check_kernels(ctx, "slots_filtering");
  Dim filtered_size("size"), slots_size("size"), seqs("num_seqs");
  check_index_tensor(ctx, "filtered_slots", filtered_slots, {&filtered_size});
  check_index_tensor(ctx, "slots", slots, {&slots_size});
  check_index_tensor(ctx, "slots_start", slots_start, {&seqs});
  Dim starts("num_seqs + 1", seqs.value() + 1);
  check_index_tensor(ctx, "cu_slots", cu_slots, {&starts});
  const SlotsFilteringParams p{.filtered_slots = IndexList(filtered_slots),
                               .slots = ConstIndexList(slots),
                               .cu_slots = ConstIndexList(cu_slots),
                               .slots_start = ConstIndexList(slots_start),
                               .num_seqs = seqs.value(),
                               .fill = fill_of(fill_value)};
  if (validating()) {
    check_on_host(ctx, {&cu_slots, &slots_start},
                  [&] { validate_slots_filtering(filtered_slots, slots, cu_slots, slots_start); });
  }
  if (ctx.device.type == DeviceType::kCpu) {
    cpu::metadata::slots_filtering(ctx, p);
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("slots_filtering");
    cuda::metadata::slots_filtering(ctx, p);
  }
}

}  // namespace heddle
