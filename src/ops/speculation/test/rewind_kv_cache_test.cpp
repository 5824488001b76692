#include "ops/speculation/test/rewind_kv_cache_test_body.h"

namespace heddle::testing {
namespace {

TEST(RewindKvCache, EqualsTakingTokensOffOneByOne) {
  rewind_kv_cache_cases::equals_taking_tokens_off_one_by_one(SpeculationRun());
}
TEST(RewindKvCache, EqualsThePublishedFormulasOnAnyState) {
  rewind_kv_cache_cases::equals_the_published_formulas_on_any_state(SpeculationRun());
}
TEST(RewindKvCache, TakesAnyNumberOfRequests) {
  rewind_kv_cache_cases::takes_any_number_of_requests(SpeculationRun());
}
TEST(RewindKvCache, KeepsEverythingWhenAllIsAccepted) {
  rewind_kv_cache_cases::keeps_everything_when_all_is_accepted(SpeculationRun());
}
TEST(RewindKvCache, StaysWithinTheBlockUpToItsFirstToken) {
  rewind_kv_cache_cases::stays_within_the_block_up_to_its_first_token(SpeculationRun());
}
TEST(RewindKvCache, ReleasesTheBlockOfARejectedFirstToken) {
  rewind_kv_cache_cases::releases_the_block_of_a_rejected_first_token(SpeculationRun());
}
TEST(RewindKvCache, ReleasesSeveralBlocksLastOneFirst) {
  rewind_kv_cache_cases::releases_several_blocks_last_one_first(SpeculationRun());
}
TEST(RewindKvCache, ReleasesTheLastBlockOfARequest) {
  rewind_kv_cache_cases::releases_the_last_block_of_a_request(SpeculationRun());
}
TEST(RewindKvCache, FallsNoFurtherThanToNoBlocks) {
  rewind_kv_cache_cases::falls_no_further_than_to_no_blocks(SpeculationRun());
}
TEST(RewindKvCache, ClampsAcceptedCounts) {
  rewind_kv_cache_cases::clamps_accepted_counts(SpeculationRun());
}
TEST(RewindKvCache, OnlyPrefillStatusOneIsPrefill) {
  rewind_kv_cache_cases::only_prefill_status_one_is_prefill(SpeculationRun());
}
TEST(RewindKvCache, RequestsPastTheStartsHaveNoDrafts) {
  rewind_kv_cache_cases::requests_past_the_starts_have_no_drafts(SpeculationRun());
}
TEST(RewindKvCache, ValidationLooksAtTheStartsOfActiveDecodeRequestsOnly) {
  rewind_kv_cache_cases::validation_looks_at_the_starts_of_active_decode_requests_only(
      SpeculationRun());
}
TEST(RewindKvCache, AListThatIsTooShortHoldsTheFirstIds) {
  rewind_kv_cache_cases::a_list_that_is_too_short_holds_the_first_ids(SpeculationRun());
}
TEST(RewindKvCache, TheCountMayLieOnTheDevice) {
  rewind_kv_cache_cases::the_count_may_lie_on_the_device(SpeculationRun());
}
TEST(RewindKvCache, EmptyBatchAndEmptyTable) {
  rewind_kv_cache_cases::empty_batch_and_empty_table(SpeculationRun());
}
TEST(RewindKvCache, ErrorsNameTensorAxisAndValues) {
  rewind_kv_cache_cases::errors_name_tensor_axis_and_values(SpeculationRun());
}
TEST(RewindKvCache, ValidationNamesRowAndValueAndChangesNothing) {
  rewind_kv_cache_cases::validation_names_row_and_value_and_changes_nothing(SpeculationRun());
}

}  // namespace
}  // namespace heddle::testing
