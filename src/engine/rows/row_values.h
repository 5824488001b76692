#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "heddle/engine/request.h"

#include "engine/rows/value_places.h"
#include "model/config/embedding_settings.h"
#include "model/config/score_head.h"

namespace heddle {

/// What a row gives in place of an answer, and what the device has found of it.
class RowValues {
 public:
  /// Of a model: what its files say, and what it can give.
  struct Source {
    const model::EmbeddingSettings& embedding;
    int64_t hidden_size;
    /// That rows are drawn from: the vocabulary of the model or the adapter; 0: there is no head.
    int64_t num_logits;
    std::shared_ptr<const model::ScoreHead> score;  // null: there is none
  };
  /// Null where the request wants an answer. Throws Error where the model cannot give what it
  /// wants.
  [[nodiscard]] static std::unique_ptr<RowValues> make(const Request& request,
                                                       const Source& source);

  /// Whether the numbers are made of hidden states, and not of logits.
  [[nodiscard]] bool pools() const { return wanted_.kind != WantedValues::Kind::kTokenScores; }
  [[nodiscard]] model::Pooling pooling() const { return pooling_; }
  /// Whether states of other tokens than the last count: none of them may come from the cache.
  [[nodiscard]] bool needs_whole_prompt() const {
    return pools() && pooling_ != model::Pooling::kLast;
  }
  /// Whose scores are wanted.
  [[nodiscard]] const std::vector<int32_t>& token_ids() const { return wanted_.token_ids; }

  /// Where the device collects the numbers; empty: the row does not run.
  ValuePlace place{};
  /// What it has collected: [hidden_size] pooled states, of the mean their sum; or the logits of
  /// token_ids and then the log-probability of the first of them.
  std::vector<float> collected{};

  /// Writes values and labels of a prompt of so many tokens.
  void finish(Completion& completion, int64_t prompt_tokens) const;

 private:
  RowValues() = default;
  [[nodiscard]] std::vector<float> embedding(int64_t prompt_tokens) const;
  [[nodiscard]] std::vector<float> token_scores() const;

  WantedValues wanted_{};
  model::Pooling pooling_ = model::Pooling::kLast;
  bool normalizes_ = true;
  std::shared_ptr<const model::ScoreHead> score_{};
};

}  // namespace heddle
