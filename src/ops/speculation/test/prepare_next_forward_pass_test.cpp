#include "ops/speculation/test/prepare_next_forward_pass_test_body.h"

namespace heddle::testing {
namespace {

TEST(PrepareNextForwardPass, EqualsTheReference) {
  prepare_next_forward_pass_cases::equals_the_reference(SpeculationRun());
}
TEST(PrepareNextForwardPass, TakesAnyNumberOfRequests) {
  prepare_next_forward_pass_cases::takes_any_number_of_requests(SpeculationRun());
}
TEST(PrepareNextForwardPass, PrefillRowsAreWrittenOnlyWhereAsked) {
  prepare_next_forward_pass_cases::prefill_rows_are_written_only_where_asked(SpeculationRun());
}
TEST(PrepareNextForwardPass, TakesAcceptedRowsOfDecodeRequestsAlone) {
  prepare_next_forward_pass_cases::takes_accepted_rows_of_decode_requests_alone(SpeculationRun());
}
TEST(PrepareNextForwardPass, ARowWithoutLastOneGetsNothing) {
  prepare_next_forward_pass_cases::a_row_without_last_one_gets_nothing(SpeculationRun());
}
TEST(PrepareNextForwardPass, WithoutDrafts) {
  prepare_next_forward_pass_cases::without_drafts(SpeculationRun());
}
TEST(PrepareNextForwardPass, CountsTrueMasksNotTokens) {
  prepare_next_forward_pass_cases::counts_true_masks_not_tokens(SpeculationRun());
}
TEST(PrepareNextForwardPass, TheCountMayLieOnTheDevice) {
  prepare_next_forward_pass_cases::the_count_may_lie_on_the_device(SpeculationRun());
}
TEST(PrepareNextForwardPass, EmptyBatch) {
  prepare_next_forward_pass_cases::empty_batch(SpeculationRun());
}
TEST(PrepareNextForwardPass, ErrorsNameTensorAxisAndValues) {
  prepare_next_forward_pass_cases::errors_name_tensor_axis_and_values(SpeculationRun());
}
TEST(PrepareNextForwardPass, ValidationNamesRowAndValue) {
  prepare_next_forward_pass_cases::validation_names_row_and_value(SpeculationRun());
}

}  // namespace
}  // namespace heddle::testing
