#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/drafters/draft_adapters.h"
#include "engine/drafters/model_drafter.h"
#include "engine/runner/model_runner.h"
#include "model/source/model_files.h"
#include "tokenizer/tokenizer.h"

namespace heddle {

/// A smaller model of the same vocabulary, which drafts greedily, token after token, for all rows
/// together. It has memory for keys and values of its own, and of each row a mirror: a sequence of
/// the row's tokens, and of those that were drafted last. What was right of these stays computed.
///
/// A mirror that lacks more than the token before the drafts computes what it lacks first. All
/// mirrors of a proposal share prefill_chunk tokens for that, those that lack the fewest first; one
/// that is not done by then drafts nothing and goes on in the next proposal, so that a long prompt
/// delays no step by more than a chunk. A mirror for which there are no pages, or which is longer
/// than the draft model's context, drafts nothing.
class DraftModel final : public ModelDrafter {
 public:
  struct Options {
    std::string path;  // model::open_model
    Device device;
    /// Those of the engine's model; max_context may be cut. kv_memory: of the draft model, 0: a
    /// quarter of what is available.
    ModelRunner::Limits limits;
    model::LoadOptions load{};
    bool strict = false;  // EngineOptions::strict
    std::function<void(const std::string& warning)> on_warning{};
  };
  /// The model's path and tokenizer, with which the draft model's are compared. Throws Error.
  DraftModel(const Options& options, const std::string& model_path,
             const tokenizer::Tokenizer& of_model);
  ~DraftModel() override;
  DraftModel(const DraftModel&) = delete;
  DraftModel& operator=(const DraftModel&) = delete;

  [[nodiscard]] DraftSource source() const override { return DraftSource::kModel; }
  [[nodiscard]] DraftingCost measured_cost() override;
  void propose(std::span<const Row> rows) override;
  void take(const RowStep& /*row*/, int64_t /*num_taken*/) noexcept override {}
  void describe(ModelInfo& info) const override;
  void check_adapter(const KnownAdapter& adapter) const override { adapters_.check(adapter); }
  /// That its keys and values may take.
  [[nodiscard]] int64_t kv_bytes() const {
    return runner_.pages().num_pages() * runner_.page_bytes();
  }

 private:
  struct Mirror;
  /// A row of one proposal.
  struct Work {
    Sequence* row;
    Mirror* mirror;
    int64_t num_drafts;  // 0: it only computes what it lacks
    int64_t num_lacking;
  };
  struct InFlight {
    StepHandle handle;
    int64_t place;  // of the drafts that it draws
  };

  [[nodiscard]] std::optional<Work> follow(const Row& row);
  [[nodiscard]] bool reserve(Mirror& mirror, int64_t num_tokens);
  void begin_step(StepSchedule& step);
  void compute();
  [[nodiscard]] StepTokens collected(const StepHandle& handle);
  void collect();
  void recover() noexcept;
  [[nodiscard]] double measured_step(Sequence& row, int64_t num_tokens);

  std::function<void(const std::string& warning)> on_warning_;
  std::unique_ptr<const model::ModelFiles> files_;
  ModelRunner::Limits limits_;
  ModelRunner runner_;
  DraftAdapters adapters_;
  std::vector<Mirror*> mirrors_;  // of all rows that have one
  std::vector<Work> work_;        // of this proposal
  std::array<StepSchedule, 2> steps_;
  std::optional<InFlight> in_flight_;
  DraftingCost cost_{};  // as it was measured
  int64_t num_proposals_ = 0;
  bool has_failed_ = false;  // nothing is drafted any more
};

}  // namespace heddle
