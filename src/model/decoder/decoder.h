#pragma once

#include <functional>
#include <vector>

#include "heddle/core/context.h"
#include "heddle/ops/kv_cache.h"
#include "heddle/ops/norm.h"

#include "core/device_tensor.h"
#include "model/adapters/adapter_vocabulary.h"
#include "model/adapters/lora_tables.h"
#include "model/config/decoder_config.h"
#include "model/decoder/step_batch.h"
#include "model/weights/decoder_weights.h"

namespace heddle::model {

/// What a step computes before its logits, and the indices it reads; all in memory of one device.
class DecoderScratch {
 public:
  /// activations: of what products read and write, but for the residual and what is added to it,
  /// which are f32.
  DecoderScratch(Device device, const DecoderConfig& config, const StepLimits& limits,
                 DType activations);

  /// Makes room for steps whose rows have lists of up to max_pairs adapters. Where it throws, all
  /// is as it was.
  void reserve_pairs(Device device, int64_t max_pairs);
  /// On a GPU: makes room for the plans of steps with adapters of up to this rank; returns whether
  /// they lie elsewhere now. Where it throws, all is as it was.
  bool reserve_plans(Device device, int max_rank);
  /// On a GPU: makes room for steps with adapters that do more at a site than to add their deltas.
  /// Where it throws, all is as it was.
  void reserve_affines(Device device, const DecoderConfig& config);

 private:
  friend class Decoder;
  StepLimits limits_;
  StagedArrays inputs_;
  DeviceTensor plans_;                      // [2, bytes] u8, of the two parts of a step
  DeviceTensor site_sums_;                  // [max_tokens * outputs of the widest site] f32
  DeviceTensor residual_, normed_, delta_;  // [max_tokens, hidden_size]
  DeviceTensor q_, k_, v_, attended_;       // [max_tokens, num_heads * head_dim]
  DeviceTensor gate_, up_;                  // [max_tokens, intermediate_size]
  DeviceTensor cos_, sin_;                  // [num_rotations * max_tokens, rotary_dim / 2]
  DeviceTensor last_;                       // [max_logit_rows, hidden_size]
};

/// The adapters that a step may use.
struct LoadedAdapters {
  LoraTables layers;
  AdapterVocabularies vocabularies;
};

/// The graph of a decoder: h += attention(norm(h)), h += mlp(norm(h)) in every layer, then norm and
/// head. In what families differ is in the configuration.
class Decoder {
 public:
  Decoder(DecoderConfig config, DecoderWeights weights)
      : config_(std::move(config)), weights_(std::move(weights)) {}

  [[nodiscard]] const DecoderConfig& config() const { return config_; }
  [[nodiscard]] const DecoderWeights& weights() const { return weights_; }

  /// Runs all layers over the batch: stores its keys and values, and writes the logits [num
  /// logit_tokens, vocab_size] of the tokens that want them; `logits` is as wide as the widest
  /// vocabulary of an adapter, and a row has as many as its own. `cache(layer)` gives the layer's
  /// part of the KV cache. A row's logits depend on its own sequence and adapter alone. All tensors
  /// are on the context's device, only the batch is in host memory. The context's workspace holds
  /// workspace_bytes. Adds the time spent in LoRA to *lora_seconds, on the CPU alone. Of a row with
  /// a list of adapters, sum_i scale_i delta_i is added wherever one adapter would add its delta.
  void forward(const ExecContext& ctx, const StepBatch& batch, DecoderScratch& scratch,
               const std::function<PagedKv(int)>& cache, const LoadedAdapters& adapters,
               TensorView logits, double* lora_seconds) const;
  /// Both halves of it: the batch's arrays come to the device, and all that reads them there, which
  /// on a GPU may be recorded to be replayed with other arrays of the same batch's shape.
  [[nodiscard]] StepInputs stage(const ExecContext& ctx, const StepBatch& batch,
                                 DecoderScratch& scratch, AddMore add_more = kNothingMore) const;
  void forward(const ExecContext& ctx, const StepBatch& batch, const StepInputs& inputs,
               DecoderScratch& scratch, const std::function<PagedKv(int)>& cache,
               const LoadedAdapters& adapters, TensorView logits, double* lora_seconds) const;

  /// Of steps within the limits, with adapters of up to this rank.
  [[nodiscard]] size_t workspace_bytes(Device device, const StepLimits& limits, int max_rank) const;

 private:
  struct Step;

  [[nodiscard]] Step make_step(const ExecContext& ctx, const StepBatch& batch,
                               const StepInputs& inputs, DecoderScratch& scratch,
                               const std::function<PagedKv(int)>& cache, const LoraTables& lora,
                               double* lora_seconds) const;
  void embed(const Step& step, const StepBatch& batch, const AdapterVocabularies& own) const;
  void head(const Step& step, const StepBatch& batch, const AdapterVocabularies& own,
            const TensorView& last, const TensorView& logits) const;
  void finish_logits(const Step& step, const TensorView& logits) const;
  static void make_plans(Step& step, const DecoderScratch& scratch);
  [[nodiscard]] static TensorView plain_input(const Step& step);
  [[nodiscard]] RmsNormOptions norm_options() const;
  [[nodiscard]] bool turns_by_positions(const Step& step, int rotation) const;
  void rotation_tables(const Step& step, const StepBatch& batch) const;
  void store_keys(const Step& step, int rotation, const PagedKv& cache) const;
  [[nodiscard]] TensorView first_input(const Step& step, const DecoderLayer& layer) const;
  [[nodiscard]] TensorView next_input(const Step& step, const DeviceTensor& weight) const;
  void attention(const Step& step, int layer_idx, const TensorView& x) const;
  void norm_q_and_k(const Step& step, const DecoderLayer& layer) const;
  void mlp(const Step& step, int layer_idx, const TensorView& x) const;
  void activate(const Step& step) const;
  void finish_delta(const Step& step, const DeviceTensor& post_norm) const;

  DecoderConfig config_;
  DecoderWeights weights_;
};

}  // namespace heddle::model
