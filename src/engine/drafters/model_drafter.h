#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heddle/engine/engine.h"
#include "heddle/engine/speculation.h"

#include "engine/drafts/draft_lengths.h"
#include "engine/rows/scheduler.h"

namespace heddle {

/// What drafts by computing: a smaller model, heads of the model itself, or a layer after it.
///
///   drafter.propose(rows);          // before a step, for all rows that draft in it
///   ...                             // the step verifies them
///   drafter.take(row, num_taken);   // for each row of the step that has drawn
///   drafter.computed(step);         // after these
///
/// Between the two a row may be parked, paused, end or change its adapters: what a drafter keeps of
/// a row lies in RowDrafts::state, and it checks that against Sequence::tokens. Nothing of it
/// reaches an answer. Calls come from the engine's thread.
class ModelDrafter {
 public:
  struct Row {
    Sequence* sequence;
    int64_t num_drafts;  // that it should have, at least 1
  };

  virtual ~ModelDrafter() = default;

  [[nodiscard]] virtual DraftSource source() const = 0;
  /// Adds the warnings and notes about it.
  virtual void describe(ModelInfo& /*info*/) const {}
  /// Throws Error where the adapter's folder has something for the drafter that it cannot take. In
  /// any thread.
  virtual void check_adapter(const KnownAdapter& /*adapter*/) const {}
  /// Of what propose computes, measured when the engine starts.
  [[nodiscard]] virtual DraftingCost measured_cost() = 0;
  /// How many tokens it can draft for the row as things are; 0: none.
  [[nodiscard]] virtual int64_t max_drafts(const Sequence& /*sequence*/) const {
    return kMaxRowDrafts;
  }
  /// Writes RowDrafts::tokens of each row: up to num_drafts tokens, which would follow
  /// Sequence::tokens; none where it cannot. Where it throws, no row has any. No step is in flight.
  virtual void propose(std::span<const Row> rows) = 0;
  /// The row of a step has drawn, and so many of its tokens count (RowStep::num_taken): they are
  /// part of Sequence::tokens. The step is the last one that was collected.
  virtual void take(const RowStep& row, int64_t num_taken) noexcept = 0;
  /// All rows of the step that was collected last have taken their tokens; those of prompts, too.
  virtual void computed(const StepSchedule& /*step*/) noexcept {}
};

}  // namespace heddle
