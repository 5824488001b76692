#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/c_api.h"
#include "heddle/ops/metadata.h"

#include "capi/test/rows/rows.h"

namespace heddle::testing {
namespace {

/// The conversions with a fill value, and a total for the one that takes it, or without.
std::vector<Row> conversion_rows(bool has_fill) {
  static constexpr int64_t kFill = -7, kTotal = 3, kWrongTotal = 4;
  const auto given = [&](const int64_t& value) {
    return both(has_fill ? &value : nullptr, has_fill ? std::optional(value) : std::nullopt);
  };
  const std::string fill = has_fill ? ", filled" : "";
  const auto starts = in<int32_t>("cu_slots", {3}, {0, 1, 2});
  return {
      row("block_tables_to_ragged" + fill, heddle_block_tables_to_ragged, block_tables_to_ragged,
          out<int32_t>("ragged", {4}), in<int32_t>("block_tables", {2, 3}, {1, 2, 3, 4, 5, 6}),
          in<int32_t>("input_lengths", {2}, {1, 1}), in<int64_t>("cache_lengths", {2}, {1, 0}),
          given(kFill), given(kTotal))
          .refuses<5>("input_lengths and cache_lengths sum to 3, expected total = 4", &kWrongTotal,
                      RunsOn::kCpu),  // a GPU does not wait for the sum
      row("block_tables_to_padded" + fill, heddle_block_tables_to_padded, block_tables_to_padded,
          out<int32_t>("block_tables", {2, 3}), in<int32_t>("ragged", {4}, {1, 2, 4, 7}),
          in<int32_t>("cu_seqlens", {3}, {0, 2, 3}), given(kFill)),
      row("slots_filtering" + fill, heddle_slots_filtering, slots_filtering,
          out<int32_t>("filtered_slots", {3}), in<int32_t>("slots", {2}, {8, 9}), starts,
          in<int32_t>("slots_start", {2}, {1, 0}), given(kFill))};
}

/// Of three requests, of which the last is padding.
auto batch_outputs() {
  const auto ints = [](const char* name, std::vector<int64_t> shape) {
    return out<int32_t>(name, std::move(shape)).optional();
  };
  const auto longs = [](const char* name, int64_t size) {
    return out<int64_t>(name, {size}).optional();
  };
  return fields<heddle_prepare_batch_outputs, PrepareBatchOutputs>(
      longs("q_indptr", 4), ints("start_lengths", {3}), ints("kv_lengths", {3}),
      ints("page_indptr", {4}), ints("last_page_len", {3}), ints("pages", {6}),
      ints("page_table", {3, 2}), ints("positions", {6}), ints("kv_slots", {6}),
      ints("token_to_seq", {6}), ints("input_ids", {6}), ints("slot_ids", {6}),
      longs("seg_starts", 3), longs("seg_ends", 3), longs("seg_slots", 3), longs("adapter_rows", 6),
      longs("adapter_indptr", 7),
      in_place<int32_t>("all_input_ids", {3, 8}, std::vector<int32_t>(24, 5)).optional(),
      ints("overflow", {1}));
}
/// With pages as a table, or ragged, and with numbers that are no defaults.
Row prepare_batch_row(const char* name, const CallTensor& table, const CallTensor& pages,
                      const CallTensor& indptr) {
  const auto ints = [](const char* tensor, std::vector<int32_t> values) {
    return in<int32_t>(tensor, {int64_t(values.size())}, values).optional();
  };
  return row(name, heddle_prepare_batch, prepare_batch, batch_outputs(),
             fields<heddle_prepare_batch_inputs, PrepareBatchInputs>(
                 in<int32_t>("cache_lengths", {3}, {3, 4, 0}), ints("accepted_lengths", {0, 1, 0}),
                 ints("input_lengths", {1, 2, 1}), ints("num_active", {2}), table, pages, indptr,
                 ints("adapter_slots", {5, 3, 5}), ints("next_input_ids", {21, 22, 23, 24}),
                 ints("next_indptr", {0, 1, 3, 4}), ints("prompt_lengths", {4, 0, 0}), 4, 2, 1, -3,
                 11))
      .refuses<1>("inputs is NULL", nullptr);
}

}  // namespace

std::vector<Row> metadata_rows() {
  std::vector<Row> rows = conversion_rows(false);
  for (Row& filled : conversion_rows(true)) rows.push_back(std::move(filled));
  rows.push_back(
      row("copy_next_input_ids_inplace", heddle_copy_next_input_ids_inplace,
          copy_next_input_ids_inplace,
          in_place<int32_t>("all_input_ids", {2, 4}, std::vector<int32_t>(8)),
          in<int32_t>("next_input_ids", {2}, {8, 9}),
          in<int32_t>("cu_accepted_ids", {3}, {0, 1, 2}), in<int32_t>("cache_lengths", {2}, {1, 0}),
          in<int32_t>("input_lengths", {2}, {1, 1}), in<int32_t>("prompt_lengths", {2}, {0, 2})));
  rows.push_back(row(
      "prepare_position_slot_ids", heddle_prepare_position_slot_ids, prepare_position_slot_ids,
      out<int32_t>("position_ids", {2}).optional(), out<int32_t>("slot_indices", {2}).optional(),
      in<int32_t>("cache_lengths", {2}, {1, 0}), in<int32_t>("cu_seqlens", {3}, {0, 1, 2}),
      in<int32_t>("cu_slots", {3}, {0, 1, 2}).optional()));
  rows.push_back(prepare_batch_row(
      "prepare_batch, table", in<int32_t>("seq_page_table", {3, 2}, {7, 8, 9, 10, 0, 0}).optional(),
      absent(), absent()));
  rows.push_back(prepare_batch_row("prepare_batch, ragged", absent(),
                                   in<int32_t>("seq_pages", {5}, {7, 8, 9, 10, 6}).optional(),
                                   in<int32_t>("seq_page_indptr", {4}, {0, 2, 4, 5}).optional()));
  return rows;
}

}  // namespace heddle::testing
