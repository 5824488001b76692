// HEDDLE_VALIDATE=1: wrong slots and segments are errors with row and value; without it they are
// rows without an adapter.
#include "ops/lora/test/validate_test_body.h"

namespace heddle::testing {
namespace {

class LoraValidate : public ::testing::Test {
 protected:
  Mirror mirror;
  LoraRun run{{}, mirror};
};

TEST_F(LoraValidate, SlotsAreBelowTheirNumber) { expect_slots_are_below_their_number<float>(run); }

TEST_F(LoraValidate, AUsedSlotHasAnAddress) { expect_a_used_slot_has_an_address<float>(run); }

TEST_F(LoraValidate, EntriesMayLackASlice) { expect_entries_may_lack_a_slice<float>(run); }

TEST_F(LoraValidate, SegmentsStayWithinTheRowsAndApart) {
  expect_segments_stay_within_the_rows_and_apart<float>(run);
}

TEST_F(LoraValidate, StartsOfPairsAreInOrder) { expect_starts_of_pairs_are_in_order<float>(run); }

}  // namespace
}  // namespace heddle::testing
