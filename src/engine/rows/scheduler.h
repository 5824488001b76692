#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/math.h"
#include "engine/rows/sequence.h"

namespace heddle {

/// Prompt tokens that one step scores: each needs a row of logits.
inline constexpr int64_t kMaxScored = 32;

/// The part that one request has in one step: its next `count` tokens, from position `first` on.
struct RowStep {
  Sequence* sequence = nullptr;  // nullptr: it is gone
  int64_t first = 0, count = 0;
  int64_t tokens_begin = 0;  // index of the first of them in the step
  int64_t num_drafts = 0;    // of the last of them: RowDrafts::tokens
  bool decodes = false;      // by the path of drawn tokens, else by that of prompts
  /// Of its last tokens: 0 within the prompt and of pooled values, else 1, and 1 for each draft.
  int64_t num_logits = 0;
  int64_t logits_begin = 0;   // index of the first of them in the step
  bool gives_values = false;  // it ends with the values that its sequence wants
  int64_t num_scored = 0;     // of its first tokens: prompt tokens that score the next one

  /// Whether results of the step still concern it.
  [[nodiscard]] bool is_alive() const { return sequence != nullptr && !sequence->answer.has_ended; }
  [[nodiscard]] std::span<const int32_t> drafts() const {
    return num_drafts == 0 ? std::span<const int32_t>() : sequence->drafts->tokens;
  }
  /// Of the tokens that its logits drew, how many count: those that equal their drafts, from the
  /// first on, and the one after them. The others were drawn after a token that is not there.
  ///   drafts 5 6 7, drawn 5 6 8 9: 3 count
  [[nodiscard]] int64_t num_taken(std::span<const int32_t> drawn) const;
};

/// One step: who takes part, those that decode first.
struct StepSchedule {
  std::vector<RowStep> rows{};
  int64_t num_tokens = 0, num_logits = 0, num_scored = 0, num_prompt_tokens = 0;

  void clear();
  /// The sequence takes part with its next `count` tokens, and so many drafts after them.
  void add(Sequence& sequence, int64_t count, int64_t num_drafts = 0);
  /// Results of the step no longer concern the sequence, which is about to be destroyed.
  void forget(const Sequence& sequence) noexcept;
  /// Whether what a request may draw depends on the tokens of its answer so far: all of them have
  /// to be known before the step draws.
  [[nodiscard]] bool adjusts_logits() const;
};

struct StepBounds {
  int64_t prefill_chunk;        // prompt tokens in a step, at least 1
  int64_t recompute_above = 0;  // DecoderConfig::recompute_above; 0: nothing is computed anew
};

/// Schedules the next step of the running sequences, without allocating. A sequence that decodes,
/// and one that has a single token of its prompt left, always takes part; all other prompts share
/// the chunk in the order of the sequences, but for those that await a page. A sequence whose drawn
/// tokens are computed again, since it was parked, decodes them one by one. One whose adapters are
/// about to change computes nothing beyond that token. One that has grown beyond recompute_above is
/// prefilled anew. Drafts of a sequence are computed with the token before them.
void schedule_step(StepSchedule& step, Sequences& running, const StepBounds& bounds);

[[nodiscard]] constexpr int64_t pages_for(int64_t num_tokens, int64_t page_size) {
  return ceil_div(num_tokens, page_size);
}

/// Pages of a sequence of max_tokens, prompt and answer: the last token is drawn, never computed.
[[nodiscard]] constexpr int64_t pages_for_row(int64_t max_tokens, int64_t page_size) {
  return pages_for(max_tokens - 1, page_size);
}

}  // namespace heddle
