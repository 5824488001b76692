#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "heddle/core/context.h"
#include "heddle/ops/kv_cache.h"
#include "heddle/ops/linear_site.h"

#include "core/device_tensor.h"
#include "model/eagle3/eagle3_config.h"
#include "model/eagle3/eagle3_weights.h"
#include "model/weights/matrix.h"

namespace heddle::model {

/// An EAGLE-3 drafter with the memory of its largest call.
///
///   model.fuse(ctx, tapped);              // hidden states of the target's last step
///   model.take_fused(ctx, hidden, rows);  // of these tokens of it
///   model.run(ctx, hidden, tokens, cache);
///   model.draw(ctx, ids, hidden);         // the target's tokens that would come next
///
/// At position p the layer takes the embedding of token p + 1, and as hidden state what the target
/// had at p or, where the target has not come there, what the layer itself gave for p - 1.
class Eagle3Model {
 public:
  /// max_tokens: of a call. target_embedding: read where the drafter has none of its own.
  Eagle3Model(Device device, Eagle3Config config, Eagle3Weights weights,
              const Matrix& target_embedding, int64_t max_tokens, int64_t max_drawn);

  [[nodiscard]] const Eagle3Config& config() const { return config_; }
  [[nodiscard]] DType activations() const { return weights_.activations; }
  [[nodiscard]] size_t workspace_bytes(Device device) const;

  /// Tokens of a call, those of a sequence next to one another, and where their keys go.
  struct Tokens {
    ConstTensorView token_ids;  // [num_tokens] i32: of token p + 1
    ConstTensorView positions;  // [num_tokens] i32: p
    ConstTensorView q_indptr;   // [num_seqs + 1] i32
    PageTable pages;
    bool is_one_each = false;  // each sequence has one token
  };

  /// tapped [num_tokens, 3 * the target's hidden_size]: what entered config().layers.
  void fuse(const ExecContext& ctx, const ConstTensorView& tapped) const;
  /// hidden[i] = the fused hidden state of token rows[i]: [num_rows, hidden_size] f32.
  void take_fused(const ExecContext& ctx, const TensorView& hidden,
                  const ConstTensorView& rows) const;
  /// Stores keys and values, and makes hidden [num_tokens, hidden_size] f32 that of the layer's
  /// outputs.
  void run(const ExecContext& ctx, const TensorView& hidden, const Tokens& tokens,
           const PagedKv& cache) const;
  /// token_ids [num_rows] i32: the likeliest after outputs of the layer.
  void draw(const ExecContext& ctx, const TensorView& token_ids,
            const ConstTensorView& hidden) const;

 private:
  void multiply(const ExecContext& ctx, std::initializer_list<LinearSlice> products,
                const ConstTensorView& x) const;
  [[nodiscard]] TensorView joined_input(const ExecContext& ctx, const TensorView& hidden,
                                        const ConstTensorView& token_ids) const;

  Eagle3Config config_;
  Eagle3Weights weights_;
  Matrix embedding_;
  int64_t max_tokens_, max_drawn_;
  DeviceTensor fused_, delta_;         // [max_tokens, hidden_size] f32
  DeviceTensor joined_, normed_;       // [max_tokens, 2 * hidden_size], [max_tokens, hidden_size]
  DeviceTensor q_, k_, v_, attended_;  // [max_tokens, heads * head_dim]
  DeviceTensor gate_, up_;             // [max_tokens, intermediate_size]
  DeviceTensor logits_, drawn_;        // [max_drawn, draft_vocab_size] f32, [max_drawn] i32
};

}  // namespace heddle::model
