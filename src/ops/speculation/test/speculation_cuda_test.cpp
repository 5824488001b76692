// The bodies of the CPU's tests on a GPU.
#include "cuda_test.h"

#include "ops/speculation/test/prepare_next_forward_pass_test_body.h"
#include "ops/speculation/test/propose_ngram_drafts_test_body.h"
#include "ops/speculation/test/rewind_kv_cache_test_body.h"
#include "ops/speculation/test/speculation_cuda_cases.h"
#include "ops/speculation/test/speculative_step_test_body.h"
#include "ops/speculation/test/verify_speculative_tokens_test_body.h"

namespace heddle::testing {
namespace {

class VerifySpeculativeTokensCuda : public CudaTest {};
TEST_F(VerifySpeculativeTokensCuda, EqualsTheReference) {
  on_cuda(verify_speculative_tokens_cases::equals_the_reference);
}
TEST_F(VerifySpeculativeTokensCuda, TakesAnyNumberOfRequests) {
  on_cuda(verify_speculative_tokens_cases::takes_any_number_of_requests);
}
TEST_F(VerifySpeculativeTokensCuda, AcceptsUpToTheFirstDifference) {
  on_cuda(verify_speculative_tokens_cases::accepts_up_to_the_first_difference);
}
TEST_F(VerifySpeculativeTokensCuda, PlaceholdersAreComparedOrRejectedAsAsked) {
  on_cuda(verify_speculative_tokens_cases::placeholders_are_compared_or_rejected_as_asked);
}
TEST_F(VerifySpeculativeTokensCuda, TailOfTheTokensIsFalseAndOfTheRowsMinusOne) {
  on_cuda(verify_speculative_tokens_cases::tail_of_the_tokens_is_false_and_of_the_rows_minus_one);
}
TEST_F(VerifySpeculativeTokensCuda, CountsOnTheDeviceGiveTheSameAndAreClamped) {
  on_cuda(verify_speculative_tokens_cases::counts_on_the_device_give_the_same_and_are_clamped);
}
TEST_F(VerifySpeculativeTokensCuda, WildStartsStayWithinTheTokens) {
  on_cuda(verify_speculative_tokens_cases::wild_starts_stay_within_the_tokens);
}
TEST_F(VerifySpeculativeTokensCuda, EmptyBatches) {
  on_cuda(verify_speculative_tokens_cases::empty_batches);
}
TEST_F(VerifySpeculativeTokensCuda, ErrorsNameTensorAxisAndValues) {
  on_cuda(verify_speculative_tokens_cases::errors_name_tensor_axis_and_values);
}
TEST_F(VerifySpeculativeTokensCuda, ValidationNamesRowAndValue) {
  on_cuda(verify_speculative_tokens_cases::validation_names_row_and_value);
}

class PrepareNextForwardPassCuda : public CudaTest {};
TEST_F(PrepareNextForwardPassCuda, EqualsTheReference) {
  on_cuda(prepare_next_forward_pass_cases::equals_the_reference);
}
TEST_F(PrepareNextForwardPassCuda, TakesAnyNumberOfRequests) {
  on_cuda(prepare_next_forward_pass_cases::takes_any_number_of_requests);
}
TEST_F(PrepareNextForwardPassCuda, PrefillRowsAreWrittenOnlyWhereAsked) {
  on_cuda(prepare_next_forward_pass_cases::prefill_rows_are_written_only_where_asked);
}
TEST_F(PrepareNextForwardPassCuda, TakesAcceptedRowsOfDecodeRequestsAlone) {
  on_cuda(prepare_next_forward_pass_cases::takes_accepted_rows_of_decode_requests_alone);
}
TEST_F(PrepareNextForwardPassCuda, ARowWithoutLastOneGetsNothing) {
  on_cuda(prepare_next_forward_pass_cases::a_row_without_last_one_gets_nothing);
}
TEST_F(PrepareNextForwardPassCuda, WithoutDrafts) {
  on_cuda(prepare_next_forward_pass_cases::without_drafts);
}
TEST_F(PrepareNextForwardPassCuda, CountsTrueMasksNotTokens) {
  on_cuda(prepare_next_forward_pass_cases::counts_true_masks_not_tokens);
}
TEST_F(PrepareNextForwardPassCuda, TheCountMayLieOnTheDevice) {
  on_cuda(prepare_next_forward_pass_cases::the_count_may_lie_on_the_device);
}
TEST_F(PrepareNextForwardPassCuda, EmptyBatch) {
  on_cuda(prepare_next_forward_pass_cases::empty_batch);
}
TEST_F(PrepareNextForwardPassCuda, ErrorsNameTensorAxisAndValues) {
  on_cuda(prepare_next_forward_pass_cases::errors_name_tensor_axis_and_values);
}
TEST_F(PrepareNextForwardPassCuda, ValidationNamesRowAndValue) {
  on_cuda(prepare_next_forward_pass_cases::validation_names_row_and_value);
}

class RewindKvCacheCuda : public CudaTest {};
TEST_F(RewindKvCacheCuda, EqualsTakingTokensOffOneByOne) {
  on_cuda(rewind_kv_cache_cases::equals_taking_tokens_off_one_by_one);
}
TEST_F(RewindKvCacheCuda, EqualsThePublishedFormulasOnAnyState) {
  on_cuda(rewind_kv_cache_cases::equals_the_published_formulas_on_any_state);
}
TEST_F(RewindKvCacheCuda, TakesAnyNumberOfRequests) {
  on_cuda(rewind_kv_cache_cases::takes_any_number_of_requests);
}
TEST_F(RewindKvCacheCuda, KeepsEverythingWhenAllIsAccepted) {
  on_cuda(rewind_kv_cache_cases::keeps_everything_when_all_is_accepted);
}
TEST_F(RewindKvCacheCuda, StaysWithinTheBlockUpToItsFirstToken) {
  on_cuda(rewind_kv_cache_cases::stays_within_the_block_up_to_its_first_token);
}
TEST_F(RewindKvCacheCuda, ReleasesTheBlockOfARejectedFirstToken) {
  on_cuda(rewind_kv_cache_cases::releases_the_block_of_a_rejected_first_token);
}
TEST_F(RewindKvCacheCuda, ReleasesSeveralBlocksLastOneFirst) {
  on_cuda(rewind_kv_cache_cases::releases_several_blocks_last_one_first);
}
TEST_F(RewindKvCacheCuda, ReleasesTheLastBlockOfARequest) {
  on_cuda(rewind_kv_cache_cases::releases_the_last_block_of_a_request);
}
TEST_F(RewindKvCacheCuda, FallsNoFurtherThanToNoBlocks) {
  on_cuda(rewind_kv_cache_cases::falls_no_further_than_to_no_blocks);
}
TEST_F(RewindKvCacheCuda, ClampsAcceptedCounts) {
  on_cuda(rewind_kv_cache_cases::clamps_accepted_counts);
}
TEST_F(RewindKvCacheCuda, OnlyPrefillStatusOneIsPrefill) {
  on_cuda(rewind_kv_cache_cases::only_prefill_status_one_is_prefill);
}
TEST_F(RewindKvCacheCuda, RequestsPastTheStartsHaveNoDrafts) {
  on_cuda(rewind_kv_cache_cases::requests_past_the_starts_have_no_drafts);
}
TEST_F(RewindKvCacheCuda, ValidationLooksAtTheStartsOfActiveDecodeRequestsOnly) {
  on_cuda(rewind_kv_cache_cases::validation_looks_at_the_starts_of_active_decode_requests_only);
}
TEST_F(RewindKvCacheCuda, AListThatIsTooShortHoldsTheFirstIds) {
  on_cuda(rewind_kv_cache_cases::a_list_that_is_too_short_holds_the_first_ids);
}
TEST_F(RewindKvCacheCuda, TheCountMayLieOnTheDevice) {
  on_cuda(rewind_kv_cache_cases::the_count_may_lie_on_the_device);
}
TEST_F(RewindKvCacheCuda, EmptyBatchAndEmptyTable) {
  on_cuda(rewind_kv_cache_cases::empty_batch_and_empty_table);
}
TEST_F(RewindKvCacheCuda, ErrorsNameTensorAxisAndValues) {
  on_cuda(rewind_kv_cache_cases::errors_name_tensor_axis_and_values);
}
TEST_F(RewindKvCacheCuda, ValidationNamesRowAndValueAndChangesNothing) {
  on_cuda(rewind_kv_cache_cases::validation_names_row_and_value_and_changes_nothing);
}

class SpeculativeStepCuda : public CudaTest {};
TEST_F(SpeculativeStepCuda, EqualsTheThreeCallsOneAfterAnother) {
  on_cuda(speculative_step_cases::equals_the_three_calls_one_after_another);
}
TEST_F(SpeculativeStepCuda, TakesAnyNumberOfRequests) {
  on_cuda(speculative_step_cases::takes_any_number_of_requests);
}
TEST_F(SpeculativeStepCuda, CountsOnTheDeviceGiveTheSame) {
  on_cuda(speculative_step_cases::counts_on_the_device_give_the_same);
}
TEST_F(SpeculativeStepCuda, EveryOutputMayBeAbsent) {
  on_cuda(speculative_step_cases::every_output_may_be_absent);
}
TEST_F(SpeculativeStepCuda, ASlotInABlockThatIsYetToBeHadIsMinusOne) {
  on_cuda(speculative_step_cases::a_slot_in_a_block_that_is_yet_to_be_had_is_minus_one);
}
TEST_F(SpeculativeStepCuda, StatesThatMakeNoSenseGiveWhatTheFormulasSay) {
  on_cuda(speculative_step_cases::states_that_make_no_sense_give_what_the_formulas_say);
}
TEST_F(SpeculativeStepCuda, EmptyBatch) { on_cuda(speculative_step_cases::empty_batch); }
TEST_F(SpeculativeStepCuda, ErrorsNameTensorAxisAndValues) {
  on_cuda(speculative_step_cases::errors_name_tensor_axis_and_values);
}
TEST_F(SpeculativeStepCuda, ValidationNamesRowAndValueAndChangesNothing) {
  on_cuda(speculative_step_cases::validation_names_row_and_value_and_changes_nothing);
}
TEST_F(SpeculativeStepCuda, ValidationCoversCountsStartsAndTheCache) {
  on_cuda(speculative_step_cases::validation_covers_counts_starts_and_the_cache);
}

class ProposeNgramDraftsCuda : public CudaTest {};
TEST_F(ProposeNgramDraftsCuda, EqualsTheReference) {
  on_cuda(propose_ngram_drafts_cases::equals_the_reference);
}
TEST_F(ProposeNgramDraftsCuda, LongAndShortSequences) {
  on_cuda(propose_ngram_drafts_cases::long_and_short_sequences);
}
TEST_F(ProposeNgramDraftsCuda, TakesAnyNumberOfSequences) {
  on_cuda(propose_ngram_drafts_cases::takes_any_number_of_sequences);
}
TEST_F(ProposeNgramDraftsCuda, TakesTheLongestNgramAndOfThoseTheFirstOrTheLast) {
  on_cuda(propose_ngram_drafts_cases::takes_the_longest_ngram_and_of_those_the_first_or_the_last);
}
TEST_F(ProposeNgramDraftsCuda, AnOccurrenceMayOverlapTheLastTokens) {
  on_cuda(propose_ngram_drafts_cases::an_occurrence_may_overlap_the_last_tokens);
}
TEST_F(ProposeNgramDraftsCuda, TokensDifferInAllTheirBits) {
  on_cuda(propose_ngram_drafts_cases::tokens_differ_in_all_their_bits);
}
TEST_F(ProposeNgramDraftsCuda, LengthsAreClamped) {
  on_cuda(propose_ngram_drafts_cases::lengths_are_clamped);
}
TEST_F(ProposeNgramDraftsCuda, EmptyBatch) { on_cuda(propose_ngram_drafts_cases::empty_batch); }
TEST_F(ProposeNgramDraftsCuda, ErrorsNameTensorAxisAndValues) {
  on_cuda(propose_ngram_drafts_cases::errors_name_tensor_axis_and_values);
}
TEST_F(ProposeNgramDraftsCuda, ValidationNamesRowAndValue) {
  on_cuda(propose_ngram_drafts_cases::validation_names_row_and_value);
}

}  // namespace
}  // namespace heddle::testing
