#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/drafters/model_drafter.h"
#include "engine/runner/model_runner.h"
#include "model/adapters/medusa/medusa_batch.h"
#include "model/source/model_files.h"

namespace heddle {

/// Drafts with Medusa heads, from the hidden states of the last step: with those of a row's adapter
/// where it has some, else with the model's. Of a row it keeps where its hidden state lies.
class MedusaDrafter : public ModelDrafter {
 public:
  /// folder: of the model's own heads; empty: adapters have them alone. The runner outlives the
  /// object. Throws Error where the heads do not fit the model. From here on adapters come with
  /// theirs.
  MedusaDrafter(ModelRunner& runner, const std::string& folder);

  /// What is odd about the model's own heads, one sentence each.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  /// The model that these were made for, as they name it; may be empty.
  [[nodiscard]] const std::string& base_model() const { return base_model_; }

  [[nodiscard]] DraftSource source() const override { return DraftSource::kHeads; }
  [[nodiscard]] DraftingCost measured_cost() override;
  [[nodiscard]] int64_t max_drafts(const Sequence& sequence) const override;
  void propose(std::span<const Row> rows) override;
  void take(const RowStep& row, int64_t num_taken) noexcept override;

 private:
  /// Where the hidden state lies from which a row drew its last token.
  struct LastHidden : DrafterState {
    uint64_t step = 0;      // ModelRunner::last_launched of it
    int32_t row = 0;        // of its logits
    size_t num_tokens = 0;  // of Sequence::tokens then
  };
  /// Heads that a row drafts with, and its head of the model; null: none, and the model's own.
  struct RowHeads {
    const model::MedusaHeads* heads = nullptr;
    const model::VocabularyTable* head = nullptr;
  };

  [[nodiscard]] const LastHidden* last_of(const Sequence& sequence) const;
  [[nodiscard]] RowHeads heads_of(const RowAdapters& adapters) const;
  [[nodiscard]] double seconds_for(const model::MedusaHeads& heads, int64_t num_drafts);

  ModelRunner& runner_;
  std::unique_ptr<const model::MedusaHeads> heads_;  // the model's own; null: none
  std::vector<std::string> warnings_;
  std::string base_model_;
  model::MedusaBatch batch_;
  std::vector<model::MedusaRow> rows_;
};

}  // namespace heddle
