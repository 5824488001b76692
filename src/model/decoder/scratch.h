#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/device_tensor.h"
#include "core/staged_arrays.h"
#include "model/config/decoder_config.h"
#include "model/decoder/step_batch.h"

namespace heddle::model {

/// What a step computes before its logits, and the indices it reads; all in memory of one device.
class DecoderScratch {
 public:
  /// activations: the dtype of what products read and write, except for the residual and what is
  /// added to it, which are f32.
  DecoderScratch(Device device, const DecoderConfig& config, const StepLimits& limits,
                 DType activations);

  /// Reserves memory for steps whose rows have lists of up to max_pairs adapters. When it throws,
  /// nothing has changed.
  void reserve_pairs(Device device, int64_t max_pairs);
  /// On a GPU: reserves memory for the plans of steps with adapters of up to this rank; returns
  /// whether their address has changed. When it throws, nothing has changed.
  bool reserve_plans(Device device, int max_rank);
  /// On a GPU: reserves memory for steps with adapters that have a factor or an offset at a site.
  /// When it throws, nothing has changed.
  void reserve_affines(Device device, const BlockShape& block);

  /// From the next step on, keeps what enters these layers, of all tokens; ascending. Once, before
  /// steps are recorded.
  void tap(Device device, std::span<const int64_t> layers);
  /// [num_tokens, taps * hidden_size] of the activations' dtype: the residuals that entered the
  /// layers of `tap`, side by side, until the next step.
  [[nodiscard]] TensorView tapped(int64_t num_tokens) const { return taps_.rows(num_tokens); }

  /// [num_tokens, hidden_size]: the hidden states of a step's tokens after the last norm, where its
  /// batch wants them, until the next step.
  [[nodiscard]] TensorView hidden(int64_t num_tokens) const { return normed_.rows(num_tokens); }
  /// [max_logit_rows, hidden_size]: of these the ones that the logits are made of, in their order,
  /// until the next step.
  [[nodiscard]] const TensorView& logit_hidden() const { return last_.view(); }

 private:
  friend class Decoder;
  StepLimits limits_;
  StagedArrays inputs_;
  DeviceTensor plans_;                      // [2, bytes] u8, of the two parts of a step
  DeviceTensor site_sums_;                  // [max_tokens * outputs of the widest inner site] f32
  DeviceTensor residual_, normed_, delta_;  // [max_tokens, hidden_size]
  DeviceTensor q_, k_, v_, attended_;       // [max_tokens, num_heads * head_dim]
  DeviceTensor gate_, up_;                  // [max_tokens, intermediate_size]
  DeviceTensor cos_, sin_;                  // [num_rotations * max_tokens, rotary_dim / 2]
  DeviceTensor last_;                       // [max_logit_rows, hidden_size]
  std::vector<int64_t> tapped_layers_;
  DeviceTensor taps_;  // [max_tokens, taps * hidden_size]; absent: none
};

}  // namespace heddle::model
