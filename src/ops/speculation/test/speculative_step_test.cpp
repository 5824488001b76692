#include "ops/speculation/test/speculative_step_test_body.h"
#include "ops/speculation/test/wrong_requests_test_body.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

TEST(SpeculativeStep, EqualsTheThreeCallsOneAfterAnother) {
  speculative_step_cases::equals_the_three_calls_one_after_another(SpeculationRun());
}
TEST(SpeculativeStep, TakesAnyNumberOfRequests) {
  speculative_step_cases::takes_any_number_of_requests(SpeculationRun());
}
TEST(SpeculativeStep, CountsOnTheDeviceGiveTheSame) {
  speculative_step_cases::counts_on_the_device_give_the_same(SpeculationRun());
}
TEST(SpeculativeStep, EveryOutputMayBeAbsent) {
  speculative_step_cases::every_output_may_be_absent(SpeculationRun());
}
TEST(SpeculativeStep, ASlotInABlockThatIsYetToBeHadIsMinusOne) {
  speculative_step_cases::a_slot_in_a_block_that_is_yet_to_be_had_is_minus_one(SpeculationRun());
}
TEST(SpeculativeStep, StatesThatMakeNoSenseGiveWhatTheFormulasSay) {
  speculative_step_cases::states_that_make_no_sense_give_what_the_formulas_say(SpeculationRun());
}
TEST(SpeculativeStep, EmptyBatch) { speculative_step_cases::empty_batch(SpeculationRun()); }
TEST(SpeculativeStep, ErrorsNameTensorAxisAndValues) {
  speculative_step_cases::errors_name_tensor_axis_and_values(SpeculationRun());
}
TEST(SpeculativeStep, ValidationNamesRowAndValueAndChangesNothing) {
  speculative_step_cases::validation_names_row_and_value_and_changes_nothing(SpeculationRun());
}
TEST(SpeculativeStep, ValidationCoversCountsStartsAndTheCache) {
  speculative_step_cases::validation_covers_counts_starts_and_the_cache(SpeculationRun());
}

TEST(Speculation, RefusesWrongRequestsWhereItValidatesAndElseChangesNoOthers) {
  expect_wrong_requests_change_no_others(SpeculationRun(), small_or(40, 600));
}

}  // namespace
}  // namespace heddle::testing
