#include "ops/speculation/test/propose_ngram_drafts_test_body.h"

namespace heddle::testing {
namespace {

TEST(ProposeNgramDrafts, EqualsTheReference) {
  propose_ngram_drafts_cases::equals_the_reference(SpeculationRun());
}
TEST(ProposeNgramDrafts, LongAndShortSequences) {
  propose_ngram_drafts_cases::long_and_short_sequences(SpeculationRun());
}
TEST(ProposeNgramDrafts, TakesAnyNumberOfSequences) {
  propose_ngram_drafts_cases::takes_any_number_of_sequences(SpeculationRun());
}
TEST(ProposeNgramDrafts, TakesTheLongestNgramAndOfThoseTheFirstOrTheLast) {
  propose_ngram_drafts_cases::takes_the_longest_ngram_and_of_those_the_first_or_the_last(
      SpeculationRun());
}
TEST(ProposeNgramDrafts, AnOccurrenceMayOverlapTheLastTokens) {
  propose_ngram_drafts_cases::an_occurrence_may_overlap_the_last_tokens(SpeculationRun());
}
TEST(ProposeNgramDrafts, TokensDifferInAllTheirBits) {
  propose_ngram_drafts_cases::tokens_differ_in_all_their_bits(SpeculationRun());
}
TEST(ProposeNgramDrafts, LengthsAreClamped) {
  propose_ngram_drafts_cases::lengths_are_clamped(SpeculationRun());
}
TEST(ProposeNgramDrafts, EmptyBatch) { propose_ngram_drafts_cases::empty_batch(SpeculationRun()); }
TEST(ProposeNgramDrafts, ErrorsNameTensorAxisAndValues) {
  propose_ngram_drafts_cases::errors_name_tensor_axis_and_values(SpeculationRun());
}
TEST(ProposeNgramDrafts, ValidationNamesRowAndValue) {
  propose_ngram_drafts_cases::validation_names_row_and_value(SpeculationRun());
}

}  // namespace
}  // namespace heddle::testing
