#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "heddle/core/context.h"

#include "core/device_tensor.h"
#include "core/staged_arrays.h"
#include "model/adapters/adapter_vocabulary.h"
#include "model/adapters/medusa/medusa_heads.h"
#include "model/config/decoder_config.h"
#include "model/weights/decoder_weights.h"

namespace heddle::model {

/// A row that Medusa heads draft for.
struct MedusaRow {
  const MedusaHeads* heads = nullptr;
  const VocabularyTable* head = nullptr;   // of its adapter; null: the model's own
  int32_t hidden = 0;                      // its row of the hidden states
  int64_t num_drafts = 0;                  // 1 to heads->num_heads()
  std::vector<int32_t>* drafts = nullptr;  // to which they are added
};

/// Drafts of rows with heads that differ, made together. Rows that share heads share their
/// products, and the model's head is read once for all.
class MedusaBatch {
 public:
  /// max_drafts: of all rows of a call together. The weights outlive the object.
  MedusaBatch(Device device, const DecoderConfig& config, const DecoderWeights& weights,
              int64_t max_drafts);

  /// Of the context of `draft`.
  [[nodiscard]] size_t workspace_bytes(Device device) const;
  /// Adds the most likely token of each of the row's first heads, the lowest of several. Changes
  /// the order of the rows, and waits until the tokens are there.
  ///   hidden [any, hidden_size] of the activations' dtype: what the model's head reads
  ///   logits [max_drafts, the widest vocabulary] f32: room
  void draft(const ExecContext& ctx, std::span<MedusaRow> rows, const ConstTensorView& hidden,
             const TensorView& logits);

 private:
  /// Rows with the same heads and the same head of the model, in memory one head after the other:
  /// first[i] .. first[i + 1] are those of head i.
  struct Group {
    std::span<const MedusaRow> rows;  // those with more drafts first
    std::vector<int64_t> first{};
    [[nodiscard]] const MedusaHeads& heads() const { return *rows.front().heads; }
    [[nodiscard]] int64_t num_heads() const { return std::ssize(first) - 1; }
    [[nodiscard]] int64_t begin() const { return first.front(); }
    [[nodiscard]] int64_t count() const { return first.back() - first.front(); }
    [[nodiscard]] int64_t count_of(int64_t head) const {
      return first[static_cast<size_t>(head + 1)] - first[static_cast<size_t>(head)];
    }
    [[nodiscard]] bool has_base_head() const;
  };

  void make_groups(std::span<MedusaRow> rows);
  void run_layer(const ExecContext& ctx, const Group& group, int64_t layer);
  [[nodiscard]] TensorView input(const ExecContext& ctx, int64_t begin, int64_t count) const;
  void compute_logits(const ExecContext& ctx, const TensorView& logits) const;
  void compute_own_logits(const ExecContext& ctx, const Group& group,
                          const TensorView& logits) const;

  int64_t hidden_size_, max_drafts_;
  const DecoderWeights& weights_;
  std::vector<Group> groups_;  // those with the model's own head first
  std::vector<int32_t> indices_;
  StagedArrays arrays_;
  DeviceTensor x_, delta_, rounded_;  // [max_drafts, hidden_size]: f32, f32, activations
  DeviceTensor ones_;                 // as delta_
  DeviceTensor slots_;                // [max_drafts] i32, zeros: VocabularyTable::change_logits
  DeviceTensor drawn_;                // [max_drafts] i32
  std::vector<int32_t> tokens_;       // in host memory
};

}  // namespace heddle::model
