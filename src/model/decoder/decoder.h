#pragma once

#include <span>
#include <utility>

#include "heddle/core/context.h"

#include "model/adapters/adapter_vocabulary.h"
#include "model/adapters/lora_tables.h"
#include "model/config/decoder_config.h"
#include "model/decoder/decoder_step.h"
#include "model/decoder/layer_cache.h"
#include "model/decoder/scratch.h"
#include "model/decoder/step_batch.h"
#include "model/weights/decoder_weights.h"

namespace heddle::model {

/// The adapters that a step may use.
struct LoadedAdapters {
  LoraTables layers;
  AdapterVocabularies vocabularies;
};

/// The graph of a decoder: h += mixer(norm(h)), h += mlp(norm(h)) in every layer, then norm and
/// head. The configuration has all that differs between families.
class Decoder {
 public:
  Decoder(DecoderConfig config, DecoderWeights weights)
      : config_(std::move(config)), block_(config_.block()), weights_(std::move(weights)) {}

  [[nodiscard]] const DecoderConfig& config() const { return config_; }
  [[nodiscard]] const BlockShape& block() const { return block_; }
  [[nodiscard]] const DecoderWeights& weights() const { return weights_; }

  /// Runs all layers over the batch: stores its keys and values, and writes the logits [num
  /// logit_tokens, vocab_size] of the tokens that want them; `logits` is as wide as the widest
  /// vocabulary of an adapter, and a row has as many as its own. `caches`: of each layer. A row's
  /// logits depend on its own sequence and adapter alone. All tensors
  /// are on the context's device, only the batch is in host memory. The context's workspace holds
  /// workspace_bytes. Adds the time spent in LoRA to *lora_seconds, on the CPU alone. Of a row with
  /// a list of adapters, sum_i scale_i delta_i is added wherever one adapter would add its delta.
  void forward(const ExecContext& ctx, const StepBatch& batch, DecoderScratch& scratch,
               std::span<const LayerCache> caches, const LoadedAdapters& adapters,
               TensorView logits, double* lora_seconds) const;
  /// The first part of it: copies the batch's arrays to the device.
  [[nodiscard]] StepInputs stage(const ExecContext& ctx, const StepBatch& batch,
                                 DecoderScratch& scratch, AddMore add_more = kNothingMore) const;
  /// What the other parts compute from.
  struct Pass {
    const StepBatch& batch;
    const StepInputs& inputs;
    DecoderScratch& scratch;
    std::span<const LayerCache> caches;
    const LoadedAdapters& adapters;
    TensorView logits;
    double* lora_seconds;
  };
  /// The other parts, in this order. On a GPU each may be recorded, and replayed with other arrays
  /// of the same shape: `run_layers` always, the others where no row has an embedding or a head of
  /// its own.
  void embed_tokens(const ExecContext& ctx, const Pass& pass) const;
  void run_layers(const ExecContext& ctx, const Pass& pass) const;
  void compute_logits(const ExecContext& ctx, const Pass& pass) const;

  /// Of steps within the limits, with adapters of up to this rank.
  [[nodiscard]] size_t workspace_bytes(Device device, const StepLimits& limits, int max_rank) const;

 private:
  static void tap(const DecoderStep& step, const DecoderScratch& scratch, int layer);
  [[nodiscard]] DecoderStep make_step(const ExecContext& ctx, const Pass& pass) const;

  DecoderConfig config_;
  BlockShape block_;
  DecoderWeights weights_;
};

}  // namespace heddle::model
