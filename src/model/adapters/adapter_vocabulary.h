#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"
#include "heddle/ops/linear.h"

#include "core/device_bytes.h"
#include "model/adapters/adapter.h"

namespace heddle::model {

/// The embedding or the head as one adapter has it: rows of its own, a low-rank sum, or a weight of
/// its own, which may have more or fewer tokens than the base model's. On the CPU alone.
class VocabularyTable {
 public:
  enum class Use : uint8_t { kEmbedding, kHead };

  /// `base`: the model's own, in use where the part has no weight; it must outlive the object.
  VocabularyTable(const ExecContext& ctx, const VocabularyPart& part, const PackedWeight& base,
                  Use use);

  [[nodiscard]] int64_t num_tokens() const { return weight_.out_features; }
  /// y[t] = the row of token_ids[t]. y [num_tokens, hidden_size] f32, token_ids [num_tokens] i32.
  void embed(const ExecContext& ctx, TensorView y, const ConstTensorView& token_ids) const;
  /// logits[t] = what the head makes of x[t]. logits [num_rows, num_tokens()] f32, x [num_rows,
  /// hidden_size] f32; is_active(t): whether the low-rank sum is added, too.
  void project(const ExecContext& ctx, const TensorView& logits, const ConstTensorView& x,
               FunctionRef<bool(int64_t)> is_active) const;
  /// Adds what `embed` adds to the base model's rows, times scale: of an adapter that is not
  /// without_sum.
  void add_to_rows(const ExecContext& ctx, const TensorView& y, const ConstTensorView& token_ids,
                   float scale) const;
  /// The same of `project`.
  void add_to_logits(const ExecContext& ctx, const TensorView& logits, const ConstTensorView& x,
                     float scale, FunctionRef<bool(int64_t)> is_active) const;

 private:
  void take_weight(const ExecContext& ctx, const StoredValues& stored);
  void take_pair(const ExecContext& ctx, const LowRank& pair, Use use);
  void add_low_rank_row(float* row, int32_t token, size_t hidden_size, float scale) const;
  void add_low_rank(const ExecContext& ctx, float* logits, const float* x, float scale) const;

  DeviceBytes memory_;                                // of a weight of its own
  PackedWeight weight_;                               // [num_tokens, hidden_size]
  std::map<int32_t, std::vector<float>> token_rows_;  // [hidden_size], in place of the weight's
  size_t rank_ = 0;                                   // 0: no low-rank sum
  float scale_ = 0;
  std::vector<float> a_;              // embedding [num_tokens, rank], head [rank, hidden_size]
  std::vector<float> b_;              // embedding [rank, hidden_size], head [rank, num_tokens]
  std::vector<float> factor_, bias_;  // of DoRA and lora_bias, by output; or empty
};

/// What the tables of an adapter take, at most. tied_head: as in AdapterVocabularies::make.
[[nodiscard]] int64_t vocabulary_bytes(const Adapter& adapter, bool tied_head);

/// The tables of all adapters that have any, by slot.
class AdapterVocabularies {
 public:
  /// Those of an adapter; null where it has the base model's.
  struct Tables {
    std::unique_ptr<VocabularyTable> embedding, head;
  };

  /// Of an adapter that fits the model. tied_head: changed rows of the embedding are the head's.
  [[nodiscard]] static Tables make(const ExecContext& ctx, const Adapter& adapter,
                                   const PackedWeight& embedding, const PackedWeight& head,
                                   bool tied_head);
  /// Room for one slot more, so that `put` cannot fail.
  void reserve() { tables_.reserve(tables_.size() + 1); }
  /// Into a slot that there is, in place of what it had, or into the one behind the last.
  void put(int32_t slot, Tables tables) noexcept;

  /// Whether any adapter has a table.
  [[nodiscard]] bool any() const { return any_; }
  /// Null for the base model's, and for no adapter.
  [[nodiscard]] const VocabularyTable* embedding(int32_t slot) const {
    return slot < 0 ? nullptr : tables_[static_cast<size_t>(slot)].embedding.get();
  }
  [[nodiscard]] const VocabularyTable* head(int32_t slot) const {
    return slot < 0 ? nullptr : tables_[static_cast<size_t>(slot)].head.get();
  }

 private:
  std::vector<Tables> tables_;  // [slot]
  bool any_ = false;
};

/// The setting because of which no sum of the adapter with others is defined; empty: there is none.
/// aLoRA, whose sum begins within a prompt, is not looked at.
[[nodiscard]] std::string_view without_sum(const ExecContext& ctx, const Adapter& adapter,
                                           const PackedWeight& embedding, const PackedWeight& head);

}  // namespace heddle::model
