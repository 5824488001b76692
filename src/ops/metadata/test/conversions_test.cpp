#include "ops/metadata/test/wrong_rows_test_body.h"

namespace heddle::testing {
namespace {

/// On the CPU, where tensors are their own mirrors.
class OnCpu {
 public:
  [[nodiscard]] MetadataRun run() { return {{}, mirror_}; }

 private:
  Mirror mirror_;
};

TEST(BlockTablesToRagged, EqualsTheDefinition) {
  expect_block_tables_to_ragged_equals_the_definition(OnCpu().run());
}

TEST(BlockTablesToPadded, EqualsTheDefinition) {
  expect_block_tables_to_padded_equals_the_definition(OnCpu().run());
}

TEST(CopyNextInputIds, EqualsTheDefinition) {
  expect_copy_next_input_ids_equals_the_definition(OnCpu().run());
}

TEST(PreparePositionSlotIds, EqualsTheDefinition) {
  expect_prepare_position_slot_ids_equals_the_definition(OnCpu().run());
}

TEST(SlotsFiltering, EqualsTheDefinition) {
  expect_slots_filtering_equals_the_definition(OnCpu().run());
}

TEST(Conversions, TakeAnyNumberOfRequestsAndAnySkew) {
  expect_conversions_take_any_number_of_requests_and_any_skew(OnCpu().run());
}

TEST(Conversions, OfLongTensorsEqualTheDefinition) {
  expect_conversions_of_long_tensors_equal_the_definition(OnCpu().run(),
                                                          IndexTensors::kContiguousI32);
  expect_conversions_of_long_tensors_equal_the_definition(OnCpu().run(),
                                                          IndexTensors::kContiguousI64);
}

TEST(Conversions, KeepAll64Bits) { expect_conversions_keep_all_64_bits(OnCpu().run()); }

TEST(Conversions, StayWithinTheirTensorsWhateverTheMetadataHolds) {
  expect_conversions_stay_within_their_tensors_whatever_the_metadata_holds(OnCpu().run());
}

TEST(Conversions, RefuseWrongRowsWhereTheyValidateAndElseSkipThem) {
  expect_conversions_skip_wrong_rows(OnCpu().run(), small_or(40, 800));
}
TEST(PrepareBatch, RefusesWrongRequestsWhereItValidatesAndElseSkipsThem) {
  expect_prepare_batch_skips_wrong_requests(OnCpu().run(), small_or(40, 800));
}

TEST(Conversions, WithoutRequestsTouchNothingAndFillOnDemand) {
  expect_conversions_without_requests_touch_nothing_and_fill_on_demand(OnCpu().run());
}

}  // namespace
}  // namespace heddle::testing
