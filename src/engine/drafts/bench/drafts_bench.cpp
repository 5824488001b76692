// What rows pay for drafts between two steps: nanoseconds a token or a call, on one core. Texts
// have words of a few tokens and phrases that come again, as answers of one adapter do.
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <benchmark/benchmark.h>

#include "engine/drafts/acceptance.h"
#include "engine/drafts/draft_lengths.h"
#include "engine/drafts/ngram_drafts.h"
#include "engine/drafts/predicted_text.h"
#include "engine/drafts/suffix_memory.h"

namespace heddle {
namespace {

using Tokens = std::vector<int32_t>;

/// Phrases of 2 to 12 tokens, whose numbers are distributed as those of words (Zipf's law).
class PhraseText {
 public:
  explicit PhraseText(size_t num_phrases) : phrases_(num_phrases) {
    std::uniform_int_distribution<size_t> length(2, 12);
    for (Tokens& phrase : phrases_) {
      phrase.resize(length(bits_));
      for (int32_t& token : phrase) token = static_cast<int32_t>(zipf(32000));
    }
  }
  Tokens answer(size_t num_tokens) {
    Tokens tokens;
    while (tokens.size() < num_tokens) {
      const Tokens& phrase = phrases_[zipf(phrases_.size())];
      tokens.insert(tokens.end(), phrase.begin(), phrase.end());
    }
    tokens.resize(num_tokens);
    return tokens;
  }

 private:
  size_t zipf(size_t n) {
    std::uniform_real_distribution<double> uniform(0, 1);
    return static_cast<size_t>(std::pow(static_cast<double>(n), uniform(bits_))) - 1;
  }
  std::mt19937_64 bits_{1};
  std::vector<Tokens> phrases_;
};

void set_tokens(benchmark::State& state, size_t num_tokens) {
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(num_tokens));
}

/// Answers of 500 tokens, as long as the memory is full and forgets; range(0): phrases.
void BM_SuffixMemoryAdd(benchmark::State& state) {
  PhraseText text(static_cast<size_t>(state.range(0)));
  SuffixMemory memory;
  std::vector<Tokens> answers;
  for (int i = 0; i < 400; ++i) answers.push_back(text.answer(500));
  size_t next = 0;
  for (auto _ : state) memory.add(answers[next++ % answers.size()]);
  set_tokens(state, 500);
  state.counters["bytes"] = static_cast<double>(memory.num_bytes());
  state.counters["bytes_per_token"] =
      static_cast<double>(memory.num_bytes()) / static_cast<double>(memory.num_tokens());
}
BENCHMARK(BM_SuffixMemoryAdd)->Arg(300)->Arg(30000);

void BM_SuffixMemoryAddOneToken(benchmark::State& state) {
  SuffixMemory memory;
  const Tokens answer(10000, 7);
  for (auto _ : state) memory.add(answer);
  set_tokens(state, answer.size());
}
BENCHMARK(BM_SuffixMemoryAddOneToken);

/// A running row: each token moves the cursor, and eight drafts are proposed.
void BM_SuffixMemoryPropose(benchmark::State& state) {
  PhraseText text(static_cast<size_t>(state.range(0)));
  SuffixMemory memory;
  for (int i = 0; i < 200; ++i) memory.add(text.answer(500));
  const Tokens row = text.answer(5000);
  const bool proposes = state.range(1) != 0;
  std::array<int32_t, 8> drafts{};
  size_t num_drafts = 0;
  for (auto _ : state) {
    SuffixMemory::Cursor cursor = memory.begin();
    for (const int32_t token : row) {
      memory.append(cursor, token);
      if (proposes) num_drafts += memory.propose(cursor, drafts);
    }
    benchmark::DoNotOptimize(cursor);
  }
  set_tokens(state, row.size());
  state.counters["drafts"] =
      static_cast<double>(num_drafts) / static_cast<double>(state.iterations() * std::ssize(row));
}
BENCHMARK(BM_SuffixMemoryPropose)->ArgsProduct({{300, 30000}, {0, 1}});

/// A row of range(0) tokens; range(1): whether its last n-gram stood before at all.
void BM_NgramDrafts(benchmark::State& state) {
  Tokens row = PhraseText(3000).answer(static_cast<size_t>(state.range(0)));
  if (state.range(1) == 0) row.back() = 1 << 20;
  std::array<int32_t, 8> drafts{};
  for (auto _ : state) {
    benchmark::DoNotOptimize(propose_from_ngrams(
        row, drafts, {.min_ngram = 2, .max_ngram = 4, .match = NgramMatch::kLast}));
  }
}
BENCHMARK(BM_NgramDrafts)->ArgsProduct({{1024, 32768}, {0, 1}});

void BM_PredictedTextAppend(benchmark::State& state) {
  const Tokens text = PhraseText(3000).answer(5000);
  Tokens answer = text;
  for (size_t i = 50; i < answer.size(); i += 100) answer[i] = 1 << 20;
  for (auto _ : state) {
    PredictedText predicted(text);
    for (const int32_t token : answer) predicted.append(token);
    benchmark::DoNotOptimize(predicted.place());
  }
  set_tokens(state, answer.size());
}
BENCHMARK(BM_PredictedTextAppend);

/// Of range(0) rows with eight drafts each, and a budget of 256.
void BM_DraftLengths(benchmark::State& state) {
  const StepCosts costs(std::vector<StepCost>{{1, 10e-3},
                                              {8, 10.2e-3},
                                              {16, 11e-3},
                                              {32, 11.5e-3},
                                              {64, 13e-3},
                                              {128, 17e-3},
                                              {256, 25e-3},
                                              {512, 40e-3}});
  DraftLengths lengths;
  const auto num_rows = static_cast<size_t>(state.range(0));
  lengths.reserve(num_rows, 256);
  for (auto _ : state) {
    lengths.rows.clear();
    for (size_t i = 0; i < num_rows; ++i) {
      lengths.rows.push_back(
          {.num_offered = 8, .accept_rate = 0.3 + 0.6 * static_cast<double>(i % 16) / 16});
    }
    choose_draft_lengths(lengths, costs);
    benchmark::DoNotOptimize(lengths.drafts.data());
  }
  state.counters["drafts"] = 0;
  for (const int each : lengths.drafts) state.counters["drafts"] += each;
}
BENCHMARK(BM_DraftLengths)->Arg(8)->Arg(128)->Arg(256);

}  // namespace
}  // namespace heddle
