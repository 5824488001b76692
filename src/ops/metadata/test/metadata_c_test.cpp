#include "heddle/ops/metadata.h"

#include <vector>

#include <gtest/gtest.h>

#include "capi/test/capi_test_body.h"

namespace heddle::testing {
namespace {

using Ints = std::vector<int32_t>;

TEST(CApiMetadata, ConvertsTablesBothWays) {
  Ints tables{1, 2, 3, 4, 5, 6}, input{1, 1}, cache{1, 0}, ragged(4, 7), padded(6, 7),
      starts{0, 2, 3};
  const CTensor c_tables(tables.data(), {2, 3}), c_input(input.data(), {2}),
      c_cache(cache.data(), {2});
  const CTensor c_ragged(ragged.data(), {4}), c_padded(padded.data(), {2, 3}),
      c_starts(starts.data(), {3});
  const Context context(1);
  const int64_t fill = -1, total = 3, wrong = 4;
  ASSERT_EQ(heddle_block_tables_to_ragged(context, c_ragged.get(), c_tables.get(), c_input.get(),
                                          c_cache.get(), nullptr, nullptr),
            HEDDLE_OK);
  EXPECT_EQ(ragged, (Ints{1, 2, 4, 7}));
  ASSERT_EQ(heddle_block_tables_to_ragged(context, c_ragged.get(), c_tables.get(), c_input.get(),
                                          c_cache.get(), &fill, &total),
            HEDDLE_OK);
  EXPECT_EQ(ragged, (Ints{1, 2, 4, -1}));
  expect_failure(HEDDLE_INVALID_ARGUMENT,
                 "input_lengths and cache_lengths sum to 3, expected total = 4",
                 heddle_block_tables_to_ragged(context, c_ragged.get(), c_tables.get(),
                                               c_input.get(), c_cache.get(), &fill, &wrong));
  ASSERT_EQ(heddle_block_tables_to_padded(context, c_padded.get(), c_ragged.get(), c_starts.get(),
                                          nullptr),
            HEDDLE_OK);
  EXPECT_EQ(padded, (Ints{1, 2, 7, 4, 7, 7}));
  expect_failure(
      HEDDLE_INVALID_ARGUMENT, "ragged is NULL",
      heddle_block_tables_to_padded(context, c_padded.get(), nullptr, c_starts.get(), nullptr));
}

TEST(CApiMetadata, ConvertsIdsPositionsAndSlots) {
  Ints all(8, 0), next{8, 9}, starts{0, 1, 2}, cache{1, 0}, input{1, 1}, prompt{0, 2};
  Ints positions(2), slots(2), from{1, 0}, filtered(2);
  const CTensor c_all(all.data(), {2, 4}), c_next(next.data(), {2}), c_starts(starts.data(), {3});
  const CTensor c_cache(cache.data(), {2}), c_input(input.data(), {2}),
      c_prompt(prompt.data(), {2});
  const CTensor c_positions(positions.data(), {2}), c_slots(slots.data(), {2});
  const CTensor c_from(from.data(), {2}), c_filtered(filtered.data(), {2});
  const Context context(1);
  ASSERT_EQ(heddle_copy_next_input_ids_inplace(context, c_all.get(), c_next.get(), c_starts.get(),
                                               c_cache.get(), c_input.get(), c_prompt.get()),
            HEDDLE_OK);
  EXPECT_EQ(all, (Ints{0, 0, 8, 0, 0, 0, 0, 0}));
  ASSERT_EQ(heddle_prepare_position_slot_ids(context, c_positions.get(), c_slots.get(),
                                             c_cache.get(), c_starts.get(), c_starts.get()),
            HEDDLE_OK);
  EXPECT_EQ(positions, (Ints{1, 0}));
  EXPECT_EQ(slots, (Ints{1, 1}));
  ASSERT_EQ(heddle_prepare_position_slot_ids(context, nullptr, nullptr, c_cache.get(),
                                             c_starts.get(), nullptr),
            HEDDLE_OK);
  ASSERT_EQ(heddle_slots_filtering(context, c_filtered.get(), c_next.get(), c_starts.get(),
                                   c_from.get(), nullptr),
            HEDDLE_OK);
  EXPECT_EQ(filtered, (Ints{9, 8}));
}

TEST(CApiMetadata, PreparesABatchOfWhatIsGiven) {
  heddle_prepare_batch_outputs outputs;
  heddle_prepare_batch_inputs inputs;
  heddle_prepare_batch_outputs_init(&outputs);
  heddle_prepare_batch_inputs_init(&inputs);
  EXPECT_EQ(inputs.pad_page, -1);
  EXPECT_EQ(inputs.tokens_per_seq, 1);
  const Context context(1);
  expect_failure(HEDDLE_INVALID_ARGUMENT, "cache_lengths is NULL",
                 heddle_prepare_batch(context, &outputs, &inputs));
  expect_failure(HEDDLE_INVALID_ARGUMENT, "inputs is NULL",
                 heddle_prepare_batch(context, &outputs, nullptr));

  Ints cache{3, 4}, adapters{5, 5}, positions(4), kv_slots(4), slots(4), overflow(1),
      pages{7, 8, 9, 10};
  std::vector<int64_t> indptr(3), seg_starts(2), seg_ends(2), seg_slots(2), rows(4), row_indptr(7);
  const CTensor c_cache(cache.data(), {2}), c_adapters(adapters.data(), {2}),
      c_pages(pages.data(), {2, 2});
  const CTensor c_positions(positions.data(), {4}), c_kv(kv_slots.data(), {4}),
      c_slots(slots.data(), {4});
  const CTensor c_indptr(indptr.data(), {3}), c_overflow(overflow.data(), {1});
  const CTensor c_starts(seg_starts.data(), {2}), c_ends(seg_ends.data(), {2}),
      c_seg_slots(seg_slots.data(), {2});
  const CTensor c_rows(rows.data(), {4}), c_row_indptr(row_indptr.data(), {7});
  inputs.cache_lengths = c_cache.get();
  inputs.adapter_slots = c_adapters.get();
  inputs.seq_page_table = c_pages.get();
  inputs.page_size = 4;
  inputs.tokens_per_seq = 2;
  outputs.q_indptr = c_indptr.get();
  outputs.positions = c_positions.get();
  outputs.kv_slots = c_kv.get();
  outputs.slot_ids = c_slots.get();
  outputs.seg_starts = c_starts.get();
  outputs.seg_ends = c_ends.get();
  outputs.seg_slots = c_seg_slots.get();
  outputs.adapter_rows = c_rows.get();
  outputs.adapter_indptr = c_row_indptr.get();
  outputs.overflow = c_overflow.get();
  ASSERT_EQ(heddle_prepare_batch(context, &outputs, &inputs), HEDDLE_OK) << heddle_last_error();
  EXPECT_EQ(indptr, (std::vector<int64_t>{0, 2, 4}));
  EXPECT_EQ(positions, (Ints{3, 4, 4, 5}));
  EXPECT_EQ(kv_slots, (Ints{31, 32, 40, 41}));
  EXPECT_EQ(slots, (Ints{5, 5, 5, 5}));
  EXPECT_EQ(seg_ends, (std::vector<int64_t>{4, 0}));
  EXPECT_EQ(seg_slots, (std::vector<int64_t>{5, -1}));
  EXPECT_EQ(rows, (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(row_indptr, (std::vector<int64_t>{0, 0, 0, 0, 0, 0, 4}));
  EXPECT_EQ(overflow, Ints{0});
}

}  // namespace
}  // namespace heddle::testing
