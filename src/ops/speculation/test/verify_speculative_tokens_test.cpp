#include "ops/speculation/test/verify_speculative_tokens_test_body.h"

namespace heddle::testing {
namespace {

TEST(VerifySpeculativeTokens, EqualsTheReference) {
  verify_speculative_tokens_cases::equals_the_reference(SpeculationRun());
}
TEST(VerifySpeculativeTokens, TakesAnyNumberOfRequests) {
  verify_speculative_tokens_cases::takes_any_number_of_requests(SpeculationRun());
}
TEST(VerifySpeculativeTokens, AcceptsUpToTheFirstDifference) {
  verify_speculative_tokens_cases::accepts_up_to_the_first_difference(SpeculationRun());
}
TEST(VerifySpeculativeTokens, PlaceholdersAreComparedOrRejectedAsAsked) {
  verify_speculative_tokens_cases::placeholders_are_compared_or_rejected_as_asked(SpeculationRun());
}
TEST(VerifySpeculativeTokens, TailOfTheTokensIsFalseAndOfTheRowsMinusOne) {
  verify_speculative_tokens_cases::tail_of_the_tokens_is_false_and_of_the_rows_minus_one(
      SpeculationRun());
}
TEST(VerifySpeculativeTokens, CountsOnTheDeviceGiveTheSameAndAreClamped) {
  verify_speculative_tokens_cases::counts_on_the_device_give_the_same_and_are_clamped(
      SpeculationRun());
}
TEST(VerifySpeculativeTokens, WildStartsStayWithinTheTokens) {
  verify_speculative_tokens_cases::wild_starts_stay_within_the_tokens(SpeculationRun());
}
TEST(VerifySpeculativeTokens, EmptyBatches) {
  verify_speculative_tokens_cases::empty_batches(SpeculationRun());
}
TEST(VerifySpeculativeTokens, ErrorsNameTensorAxisAndValues) {
  verify_speculative_tokens_cases::errors_name_tensor_axis_and_values(SpeculationRun());
}
TEST(VerifySpeculativeTokens, ValidationNamesRowAndValue) {
  verify_speculative_tokens_cases::validation_names_row_and_value(SpeculationRun());
}

}  // namespace
}  // namespace heddle::testing
