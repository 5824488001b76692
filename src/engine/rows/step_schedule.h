#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/rows/sequence.h"

namespace heddle {

/// The part that one request has in one step: its next `count` tokens, from position `first` on.
struct RowStep {
  Sequence* sequence = nullptr;  // nullptr: it is gone
  int64_t first = 0, count = 0;
  bool decodes = false;    // by the path of drawn tokens, else by that of prompts
  int64_t num_logits = 0;  // of its last tokens: 0 within the prompt, else 1, and 1 for each draft
  int64_t logits_begin = 0;  // index of the first of them in the step
  int64_t num_scored = 0;    // of its first tokens: prompt tokens that score the next one

  /// Whether results of the step still concern it.
  [[nodiscard]] bool is_alive() const { return sequence != nullptr && !sequence->answer.has_ended; }
};

/// One step: who takes part, those that decode first.
struct StepSchedule {
  std::vector<RowStep> rows{};
  int64_t num_logits = 0, num_scored = 0, num_prompt_tokens = 0;
  /// Whether it may be launched while the previous step is in flight: drawn tokens stay on the
  /// device, and the host neither changes nor reads logits.
  bool overlaps = false;

  void clear();
  /// The sequence takes part with its next `count` tokens.
  void add(Sequence& sequence, int64_t count);
  /// Results of the step no longer concern the sequence, which is about to be destroyed.
  void forget(const Sequence& sequence) noexcept;
};

/// Puts the tokens of the answer since the last event into this one. Where memory runs out the
/// completion alone has them.
void tell_tokens(Sequence& sequence, Event& event) noexcept;

}  // namespace heddle
