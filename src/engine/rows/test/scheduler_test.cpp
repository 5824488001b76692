#include "engine/rows/scheduler.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include <gtest/gtest.h>

namespace heddle {
namespace {

using Counts = std::vector<int64_t>;

struct Lengths {
  int64_t prompt, num_tokens, num_cached;
};

Sequence of(const Lengths& lengths) {
  Sequence sequence;
  sequence.tokens.resize(static_cast<size_t>(lengths.num_tokens));
  sequence.request.prompt_tokens = lengths.prompt;
  sequence.request.max_tokens = 1000;
  sequence.cache.prefill_length = lengths.prompt;
  sequence.cache.num_cached = lengths.num_cached;
  return sequence;
}

Sequences all(const std::vector<Lengths>& lengths) {
  Sequences sequences;
  for (const Lengths& each : lengths) sequences.push_back(of(each));
  return sequences;
}

/// Tokens of each sequence in the next step.
Counts counts(Sequences& sequences, const StepBounds& bounds) {
  StepSchedule step;
  schedule_step(step, sequences, bounds);
  Counts counts;
  for (const Sequence& sequence : sequences) {
    const auto row = std::ranges::find(step.rows, &sequence, &RowStep::sequence);
    counts.push_back(row == step.rows.end() ? 0 : row->count);
  }
  return counts;
}

Counts counts(const std::vector<Lengths>& lengths, int64_t prefill_chunk) {
  Sequences sequences = all(lengths);
  return counts(sequences, {.prefill_chunk = prefill_chunk});
}

TEST(ScheduleStep, SequencesThatDecodeGetOneTokenEach) {
  EXPECT_EQ(counts({{4, 10, 9}, {3, 3, 2}, {2, 3, 2}}, 1), (Counts{1, 1, 1}));
}

TEST(ScheduleStep, PromptsShareTheChunkInOrder) {
  EXPECT_EQ(counts({{100, 100, 0}, {50, 50, 49}, {100, 100, 0}, {100, 100, 0}}, 150),
            (Counts{100, 1, 50, 0}));
}

TEST(ScheduleStep, ALongPromptIsCut) {
  EXPECT_EQ(counts({{100, 100, 0}}, 64), (Counts{64}));
  EXPECT_EQ(counts({{100, 100, 64}}, 64), (Counts{36}));
}

TEST(ScheduleStep, ListsThoseThatDecodeFirstAndCountsLogitsAndTokens) {
  Sequences sequences = all({{6, 6, 2}, {9, 9, 0}, {3, 5, 4}});
  StepSchedule step;
  schedule_step(step, sequences, {.prefill_chunk = 10});
  ASSERT_EQ(step.rows.size(), 3u);
  const Sequence* const wanted[] = {&sequences.back(), &sequences.front(), &*++sequences.begin()};
  const Counts counts{1, 4, 6}, num_logits{1, 1, 0}, logits_begin{0, 1, 2};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(step.rows[i].sequence, wanted[i]);
    EXPECT_EQ(step.rows[i].count, counts[i]);
    EXPECT_EQ(step.rows[i].num_logits, num_logits[i]);
    EXPECT_EQ(step.rows[i].logits_begin, logits_begin[i]);
    EXPECT_EQ(step.rows[i].decodes, i == 0);
  }
  EXPECT_EQ(step.num_logits, 2);
  EXPECT_EQ(step.num_prompt_tokens, 10);
}

TEST(ScheduleStep, PausedSequencesAndThoseWhoseLastTokenIsPendingWait) {
  Sequences sequences = all({{3, 5, 4}, {3, 5, 5}, {3, 5, 5}});
  sequences.front().is_paused = true;
  for (Sequence& sequence : sequences) sequence.cache.num_pending = 1;
  sequences.back().request.max_tokens = 6;
  EXPECT_EQ(counts(sequences, {.prefill_chunk = 10}), (Counts{0, 1, 0}));
}

TEST(ScheduleStep, ScoredPromptsGetFewTokens) {
  Sequences sequences = all({{kMaxScored, kMaxScored, 0}, {50, 50, 0}, {50, 50, 0}});
  sequences.front().request.scores_prompt = (++sequences.begin())->request.scores_prompt = true;
  // The last token of a prompt scores nothing.
  EXPECT_EQ(counts(sequences, {.prefill_chunk = 100}), (Counts{kMaxScored, 1, 18}));
}

TEST(ScheduleStep, ASequenceThatHasGrownTooLongIsPrefilledAnew) {
  Sequences sequences = all({{3, 8, 7}, {3, 9, 8}, {9, 10, 9}});
  EXPECT_EQ(counts(sequences, {.prefill_chunk = 100, .recompute_above = 8}), (Counts{1, 9, 1}));
  EXPECT_EQ((++sequences.begin())->cache.prefill_length, 9);
}

TEST(PagesForRow, CountsAllTokensButTheLastWhichIsNeverRun) {
  EXPECT_EQ(pages_for_row(17, 16), 1);
  EXPECT_EQ(pages_for_row(18, 16), 2);
  EXPECT_EQ(pages_for_row(2, 1), 1);
}

}  // namespace
}  // namespace heddle
