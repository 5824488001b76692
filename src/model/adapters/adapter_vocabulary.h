#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"
#include "heddle/ops/lora_table.h"

#include "core/device_bytes.h"
#include "core/device_tensor.h"
#include "model/adapters/adapter.h"
#include "model/adapters/own_matrix.h"
#include "model/weights/matrix.h"

namespace heddle::model {

/// The embedding or the head as one adapter has it: rows of its own, a low-rank sum, or a weight of
/// its own, which may have more or fewer tokens than the base model's. In memory of one device. On
/// a GPU a weight of its own and the low-rank sum of a head are rounded to the activations' dtype,
/// as the base model's matrices and LoRA are; everything else is f32.
class VocabularyTable {
 public:
  enum class Use : uint8_t { kEmbedding, kHead };

  /// `base`: the model's own, in use where the part has no weight; it must outlive the object.
  VocabularyTable(const ExecContext& ctx, const VocabularyPart& part, const Matrix& base, Use use,
                  DType activations);

  [[nodiscard]] int64_t num_tokens() const { return weight_.out_features; }
  /// Whether its rows are made of a weight of its own, else of the base model's.
  [[nodiscard]] bool has_weight() const { return own_.memory != nullptr; }
  [[nodiscard]] const Matrix& weight() const { return weight_; }
  /// y [num_tokens, hidden_size] f32 holds the weight's rows of the tokens, and becomes the
  /// adapter's. token_ids [num_tokens] i32.
  void change_rows(const ExecContext& ctx, const TensorView& y,
                   const ConstTensorView& token_ids) const;
  /// logits [num_rows, num_tokens()] f32 hold what the weight makes of x, and become the adapter's.
  /// x [num_rows, hidden_size] of activations; slots [num_rows] i32: 0 where the low-rank sum is
  /// added, too, else kNoAdapter. Needs workspace_bytes.
  void change_logits(const ExecContext& ctx, const TensorView& logits, const ConstTensorView& x,
                     const ConstTensorView& slots) const;
  /// Adds what change_rows adds to the base model's rows, times scale: of an adapter that is not
  /// without_sum.
  void add_to_rows(const ExecContext& ctx, const TensorView& y, const ConstTensorView& token_ids,
                   float scale) const;
  /// Adds what change_logits adds to the logits of the base model, times scale.
  void add_to_logits(const ExecContext& ctx, const TensorView& logits, const ConstTensorView& x,
                     float scale, const ConstTensorView& slots) const;
  /// Of a product with the weight, change_logits and add_to_logits of up to num_rows rows.
  [[nodiscard]] size_t workspace_bytes(Device device, int64_t num_rows) const;

 private:
  void take_rows(const ExecContext& ctx, const VocabularyPart& part);
  void take_embedding_pair(const ExecContext& ctx, const LowRank& pair);
  void take_head_pair(const ExecContext& ctx, const LowRank& pair, DType activations);
  void take_affine(const ExecContext& ctx, const LowRank& pair);
  void add_delta_on_cpu(const ExecContext& ctx, const TensorView& logits, const ConstTensorView& x,
                        float scale, const ConstTensorView& slots) const;
  void add_delta_on_gpu(const ExecContext& ctx, const TensorView& logits, const ConstTensorView& x,
                        float scale, const ConstTensorView& slots) const;

  OwnMatrix own_;  // a weight of its own
  Matrix weight_;  // [num_tokens, hidden_size]
  DeviceTensor own_ids_,
      own_rows_;      // [n] i32 ascending, [n, hidden_size]: in place of the weight's
  int64_t rank_ = 0;  // 0: no low-rank sum
  float scale_ = 0;
  // Of an embedding [num_tokens, rank] and [rank, hidden_size]. Of a head on the CPU [rank,
  // hidden_size] and [rank, num_tokens]; on a GPU [1, rank, hidden_size] and [1, num_tokens, rank].
  DeviceTensor a_, b_;
  DeviceTensor factor_;  // [hidden_size], of an embedding with DoRA
  DeviceTensor affine_;  // [1 or 2, num_tokens]: factor and offset of a head with DoRA or lora_bias
  DeviceBytes entry_;    // the LoraWeight of affine_
};

/// What the tables of an adapter take, at most. tied_head: as in AdapterVocabularies::make;
/// rounded_to: the dtype of the activations on a GPU, absent on the CPU.
[[nodiscard]] int64_t vocabulary_bytes(const Adapter& adapter, bool tied_head,
                                       std::optional<DType> rounded_to = {});

/// The tables of all adapters that have any, by slot.
class AdapterVocabularies {
 public:
  /// Those of an adapter; null where it has the base model's.
  struct Tables {
    std::unique_ptr<VocabularyTable> embedding, head;
  };

  /// Of an adapter that fits the model. tied_head: changed rows of the embedding are the head's.
  [[nodiscard]] static Tables make(const ExecContext& ctx, const Adapter& adapter,
                                   const Matrix& embedding, const Matrix& head, bool tied_head,
                                   DType activations);
  /// Room for one slot more, so that `put` cannot fail.
  void reserve() { tables_.reserve(tables_.size() + 1); }
  /// Puts them into an existing slot, replacing its tables, or into the slot after the last.
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
                                           const Matrix& embedding, const Matrix& head);

}  // namespace heddle::model
