#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "heddle/engine/speculation.h"

#include "engine/drafts/acceptance.h"
#include "engine/drafts/draft_lengths.h"
#include "engine/drafts/step_costs.h"
#include "engine/drafts/suffix_memories.h"
#include "engine/rows/scheduler.h"

namespace heddle {

/// What an engine drafts for its rows, and for which of them that pays.
///
///   drafter.propose(sequence, 8);       // before a step, for each row that may draft
///   drafter.fit(running, num_prompt);   // as many of them as the costs of steps allow
///   ...                                 // the step verifies them
///   drafter.count(row, num_accepted);   // for each row of the step
///   drafter.remember(sequence);         // of a row that has ended
class Drafter {
 public:
  /// max_rows: of a step.
  Drafter(const SpeculationOptions& options, int64_t max_rows);

  [[nodiscard]] bool is_on() const { return method_ != DraftMethod::kOff; }
  /// Of steps of one token and more, as they were measured.
  void set_costs(StepCosts costs) { costs_ = std::move(costs); }
  /// Of the model that drafts, and what its drafts are.
  void set_model(DraftSource source, DraftingCost cost) {
    model_source_ = source;
    lengths_.drafting = cost;
  }
  [[nodiscard]] const StepCosts& costs() const { return costs_; }

  /// Of a request; null: nothing is drafted. `method` empty: that of the options. Throws Error for
  /// one that there is not, or that these options leave out, and for a prediction without one.
  [[nodiscard]] std::unique_ptr<RowDrafts> drafts_of(const std::string& method,
                                                     std::vector<int32_t> prediction) const;

  /// Whether drafts of the row have been right often enough, or it is time to see whether they are.
  [[nodiscard]] static bool may_try(const Sequence& sequence);
  /// Whether a step should wait for the row's next token, since it may have drafts then. Where none
  /// were found for long, that is so now and then.
  [[nodiscard]] static bool pays_to_wait(const Sequence& sequence);
  /// Writes RowDrafts::tokens, but for those of a format: what may follow the row's tokens, of its
  /// own text and of the answers that RowDrafts::key has.
  /// Where a model is to draft for the row they are zeros, and RowDrafts::is_open: how many of them
  /// it drafts is what fit leaves.
  void propose(Sequence& sequence, int64_t max_drafts);
  /// Cuts the drafts of the rows to those that raise the tokens per second that the next step may
  /// expect. num_prompt_tokens: of that step.
  void fit(Sequences& running, int64_t num_prompt_tokens);
  /// A step has verified the row's drafts, of which so many were right.
  void count(const RowStep& row, int64_t num_accepted) noexcept;
  /// A row of kSuffix has ended: its answer is one to draft from.
  void remember(const Sequence& sequence) noexcept;

 private:
  struct HashDigest {
    size_t operator()(const Digest& digest) const noexcept {
      return static_cast<size_t>(digest.low ^ digest.high);
    }
  };
  void read(Sequence& sequence);
  void propose_suffix(RowDrafts& drafts, int64_t max_drafts);

  SpeculationOptions options_;
  DraftMethod method_;
  StepCosts costs_;
  DraftSource model_source_ = DraftSource::kModel;
  DraftLengths lengths_;
  std::vector<RowDrafts*> offering_;  // the rows of lengths_, in their order
  SuffixMemories memories_;
  std::unordered_map<Digest, AcceptanceAverage, HashDigest> averages_;  // by adapters
};

}  // namespace heddle
