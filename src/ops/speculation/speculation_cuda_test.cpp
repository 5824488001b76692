// The bodies of the CPU's tests on a GPU.
#include "cuda_test.h"

#include "ops/speculation/prepare_next_forward_pass_cases.h"
#include "ops/speculation/rewind_kv_cache_cases.h"
#include "ops/speculation/speculation_cuda_cases.h"
#include "ops/speculation/speculative_step_cases.h"
#include "ops/speculation/verify_speculative_tokens_cases.h"

namespace heddle::testing {
namespace {

class VerifySpeculativeTokensCuda : public CudaTest {};
TEST_F(VerifySpeculativeTokensCuda, EqualsTheReference) {
  verify_speculative_tokens_cases::equals_the_reference(CudaRun());
}
TEST_F(VerifySpeculativeTokensCuda, TakesAnyNumberOfRequests) {
  verify_speculative_tokens_cases::takes_any_number_of_requests(CudaRun());
}
TEST_F(VerifySpeculativeTokensCuda, AcceptsUpToTheFirstDifference) {
  verify_speculative_tokens_cases::accepts_up_to_the_first_difference(CudaRun());
}
TEST_F(VerifySpeculativeTokensCuda, PlaceholdersAreComparedOrRejectedAsAsked) {
  verify_speculative_tokens_cases::placeholders_are_compared_or_rejected_as_asked(CudaRun());
}
TEST_F(VerifySpeculativeTokensCuda, TailOfTheTokensIsFalseAndOfTheRowsMinusOne) {
  verify_speculative_tokens_cases::tail_of_the_tokens_is_false_and_of_the_rows_minus_one(CudaRun());
}
TEST_F(VerifySpeculativeTokensCuda, CountsOnTheDeviceGiveTheSameAndAreClamped) {
  verify_speculative_tokens_cases::counts_on_the_device_give_the_same_and_are_clamped(CudaRun());
}
TEST_F(VerifySpeculativeTokensCuda, WildStartsStayWithinTheTokens) {
  verify_speculative_tokens_cases::wild_starts_stay_within_the_tokens(CudaRun());
}
TEST_F(VerifySpeculativeTokensCuda, EmptyBatches) {
  verify_speculative_tokens_cases::empty_batches(CudaRun());
}
TEST_F(VerifySpeculativeTokensCuda, ErrorsNameTensorAxisAndValues) {
  verify_speculative_tokens_cases::errors_name_tensor_axis_and_values(CudaRun());
}
TEST_F(VerifySpeculativeTokensCuda, ValidationNamesRowAndValue) {
  verify_speculative_tokens_cases::validation_names_row_and_value(CudaRun());
}

class PrepareNextForwardPassCuda : public CudaTest {};
TEST_F(PrepareNextForwardPassCuda, EqualsTheReference) {
  prepare_next_forward_pass_cases::equals_the_reference(CudaRun());
}
TEST_F(PrepareNextForwardPassCuda, TakesAnyNumberOfRequests) {
  prepare_next_forward_pass_cases::takes_any_number_of_requests(CudaRun());
}
TEST_F(PrepareNextForwardPassCuda, PrefillRowsAreWrittenOnlyWhereAsked) {
  prepare_next_forward_pass_cases::prefill_rows_are_written_only_where_asked(CudaRun());
}
TEST_F(PrepareNextForwardPassCuda, ARowWithoutLastOneGetsNothing) {
  prepare_next_forward_pass_cases::a_row_without_last_one_gets_nothing(CudaRun());
}
TEST_F(PrepareNextForwardPassCuda, WithoutDrafts) {
  prepare_next_forward_pass_cases::without_drafts(CudaRun());
}
TEST_F(PrepareNextForwardPassCuda, CountsTrueMasksNotTokens) {
  prepare_next_forward_pass_cases::counts_true_masks_not_tokens(CudaRun());
}
TEST_F(PrepareNextForwardPassCuda, TheCountMayLieOnTheDevice) {
  prepare_next_forward_pass_cases::the_count_may_lie_on_the_device(CudaRun());
}
TEST_F(PrepareNextForwardPassCuda, EmptyBatch) {
  prepare_next_forward_pass_cases::empty_batch(CudaRun());
}
TEST_F(PrepareNextForwardPassCuda, ErrorsNameTensorAxisAndValues) {
  prepare_next_forward_pass_cases::errors_name_tensor_axis_and_values(CudaRun());
}
TEST_F(PrepareNextForwardPassCuda, ValidationNamesRowAndValue) {
  prepare_next_forward_pass_cases::validation_names_row_and_value(CudaRun());
}

class RewindKvCacheCuda : public CudaTest {};
TEST_F(RewindKvCacheCuda, EqualsTakingTokensOffOneByOne) {
  rewind_kv_cache_cases::equals_taking_tokens_off_one_by_one(CudaRun());
}
TEST_F(RewindKvCacheCuda, EqualsThePublishedFormulasOnAnyState) {
  rewind_kv_cache_cases::equals_the_published_formulas_on_any_state(CudaRun());
}
TEST_F(RewindKvCacheCuda, TakesAnyNumberOfRequests) {
  rewind_kv_cache_cases::takes_any_number_of_requests(CudaRun());
}
TEST_F(RewindKvCacheCuda, KeepsEverythingWhenAllIsAccepted) {
  rewind_kv_cache_cases::keeps_everything_when_all_is_accepted(CudaRun());
}
TEST_F(RewindKvCacheCuda, StaysWithinTheBlockUpToItsFirstToken) {
  rewind_kv_cache_cases::stays_within_the_block_up_to_its_first_token(CudaRun());
}
TEST_F(RewindKvCacheCuda, ReleasesTheBlockOfARejectedFirstToken) {
  rewind_kv_cache_cases::releases_the_block_of_a_rejected_first_token(CudaRun());
}
TEST_F(RewindKvCacheCuda, ReleasesSeveralBlocksLastOneFirst) {
  rewind_kv_cache_cases::releases_several_blocks_last_one_first(CudaRun());
}
TEST_F(RewindKvCacheCuda, ReleasesTheLastBlockOfARequest) {
  rewind_kv_cache_cases::releases_the_last_block_of_a_request(CudaRun());
}
TEST_F(RewindKvCacheCuda, FallsNoFurtherThanToNoBlocks) {
  rewind_kv_cache_cases::falls_no_further_than_to_no_blocks(CudaRun());
}
TEST_F(RewindKvCacheCuda, ClampsAcceptedCounts) {
  rewind_kv_cache_cases::clamps_accepted_counts(CudaRun());
}
TEST_F(RewindKvCacheCuda, OnlyPrefillStatusOneIsPrefill) {
  rewind_kv_cache_cases::only_prefill_status_one_is_prefill(CudaRun());
}
TEST_F(RewindKvCacheCuda, RequestsPastTheStartsHaveNoDrafts) {
  rewind_kv_cache_cases::requests_past_the_starts_have_no_drafts(CudaRun());
}
TEST_F(RewindKvCacheCuda, ValidationLooksAtTheStartsOfActiveDecodeRequestsOnly) {
  rewind_kv_cache_cases::validation_looks_at_the_starts_of_active_decode_requests_only(CudaRun());
}
TEST_F(RewindKvCacheCuda, AListThatIsTooShortHoldsTheFirstIds) {
  rewind_kv_cache_cases::a_list_that_is_too_short_holds_the_first_ids(CudaRun());
}
TEST_F(RewindKvCacheCuda, TheCountMayLieOnTheDevice) {
  rewind_kv_cache_cases::the_count_may_lie_on_the_device(CudaRun());
}
TEST_F(RewindKvCacheCuda, EmptyBatchAndEmptyTable) {
  rewind_kv_cache_cases::empty_batch_and_empty_table(CudaRun());
}
TEST_F(RewindKvCacheCuda, ErrorsNameTensorAxisAndValues) {
  rewind_kv_cache_cases::errors_name_tensor_axis_and_values(CudaRun());
}
TEST_F(RewindKvCacheCuda, ValidationNamesRowAndValueAndChangesNothing) {
  rewind_kv_cache_cases::validation_names_row_and_value_and_changes_nothing(CudaRun());
}

class SpeculativeStepCuda : public CudaTest {};
TEST_F(SpeculativeStepCuda, EqualsTheThreeCallsOneAfterAnother) {
  speculative_step_cases::equals_the_three_calls_one_after_another(CudaRun());
}
TEST_F(SpeculativeStepCuda, TakesAnyNumberOfRequests) {
  speculative_step_cases::takes_any_number_of_requests(CudaRun());
}
TEST_F(SpeculativeStepCuda, CountsOnTheDeviceGiveTheSame) {
  speculative_step_cases::counts_on_the_device_give_the_same(CudaRun());
}
TEST_F(SpeculativeStepCuda, EveryOutputMayBeAbsent) {
  speculative_step_cases::every_output_may_be_absent(CudaRun());
}
TEST_F(SpeculativeStepCuda, ASlotInABlockThatIsYetToBeHadIsMinusOne) {
  speculative_step_cases::a_slot_in_a_block_that_is_yet_to_be_had_is_minus_one(CudaRun());
}
TEST_F(SpeculativeStepCuda, EmptyBatch) { speculative_step_cases::empty_batch(CudaRun()); }
TEST_F(SpeculativeStepCuda, ErrorsNameTensorAxisAndValues) {
  speculative_step_cases::errors_name_tensor_axis_and_values(CudaRun());
}
TEST_F(SpeculativeStepCuda, ValidationNamesRowAndValueAndChangesNothing) {
  speculative_step_cases::validation_names_row_and_value_and_changes_nothing(CudaRun());
}
TEST_F(SpeculativeStepCuda, ValidationCoversCountsStartsAndTheCache) {
  speculative_step_cases::validation_covers_counts_starts_and_the_cache(CudaRun());
}

}  // namespace
}  // namespace heddle::testing
