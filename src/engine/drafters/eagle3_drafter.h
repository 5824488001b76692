#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/device_tensor.h"
#include "core/staged_arrays.h"
#include "engine/cache/kv_cache.h"
#include "engine/cache/page_pool.h"
#include "engine/drafters/model_drafter.h"
#include "engine/rows/row_drafts.h"
#include "engine/runner/model_runner.h"
#include "model/eagle3/eagle3_model.h"

namespace heddle {

/// Drafts by an EAGLE-3 drafter: one layer that reads hidden states of the model (model/eagle3).
///
/// After each step it runs over the positions that the step has settled, so that its own KV cache
/// grows with the row's text; its last output gives the first draft, and each further draft is a
/// pass over one token of all rows. Keys of drafts lie past the end of those of the text, and later
/// passes write over them.
///
/// Where hidden states of a position are gone or never were, as after a hit in the prefix cache,
/// the layer's context begins after it: positions keep their angles, and drafts are less often
/// right.
class Eagle3Drafter : public ModelDrafter {
 public:
  struct Limits {
    int64_t max_batch, max_context;
    int page_size;
  };

  /// folder: of the drafter. Throws Error where it does not fit the runner's model. The runner has
  /// made no step yet, and outlives the drafter.
  Eagle3Drafter(ModelRunner& runner, const std::string& folder, const Limits& limits);

  [[nodiscard]] DraftSource source() const override { return DraftSource::kEagle3; }
  void describe(ModelInfo& info) const override {
    info.notes.insert(info.notes.end(), notes_.begin(), notes_.end());
  }
  [[nodiscard]] DraftingCost measured_cost() override;
  void propose(std::span<const Row> rows) override;
  void take(const RowStep& /*row*/, int64_t /*num_taken*/) noexcept override {}
  void computed(const StepSchedule& step) noexcept override;

 private:
  struct Shared;
  struct Context;
  /// Arrays of a pass, as Eagle3Model::Tokens has them.
  struct Batch {
    std::vector<int32_t> token_ids{}, rows{}, positions{};
    std::vector<int32_t> q_indptr{}, page_indptr{}, pages{}, last_page_len{};

    void clear();
    void add_sequence(const Context& context, int64_t end, int64_t page_size);
  };
  /// A row that drafts now.
  struct Drafting {
    RowDrafts* drafts;
    Context* context;
    int64_t num_drafts;
  };

  Context* context_of(Sequence& sequence);
  bool grow(Context& context, int64_t end);
  void add_settled(const RowStep& row);
  void run_over_settled();
  void choose_rows(std::span<const Row> rows);
  void stage_round(int64_t round);
  void run_rounds();

  ModelRunner& runner_;
  Limits limits_;
  std::vector<std::string> notes_;  // before the model, whose loading writes them
  model::Eagle3Model model_;
  std::shared_ptr<Shared> shared_;  // with the rows' contexts, which may outlive the drafter
  KvCache cache_;
  StagedArrays staged_;
  Batch batch_;
  std::vector<Context*> in_pass_;   // of the rows of batch_
  std::vector<Drafting> drafting_;  // those with the most drafts first
  std::vector<model::Eagle3Model::Tokens> rounds_;
  std::vector<int32_t> ids_;
  int64_t num_passes_ = 0;  // over settled positions
  DeviceTensor outputs_;    // [max_tokens, hidden_size] f32, of the last of them
  DeviceTensor hidden_;     // [kMaxStepDrafts, hidden_size] f32
  DeviceTensor drawn_;      // [kMaxRowDrafts * kMaxStepDrafts] i32
};

}  // namespace heddle
