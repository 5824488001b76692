#pragma once

#include <array>
#include <initializer_list>
#include <span>

#include "heddle/core/context.h"
#include "heddle/ops/linear_site.h"
#include "heddle/ops/norm.h"

#include "model/adapters/lora_tables.h"
#include "model/config/decoder_config.h"
#include "model/decoder/layer_cache.h"
#include "model/decoder/step_batch.h"
#include "model/weights/decoder_weights.h"

namespace heddle::model {

/// Neighbouring tokens of a step that take one path. On the CPU, where paths do not differ, all
/// tokens are one part.
struct StepPart {
  LinearPath path;
  int64_t first_token, num_tokens, first_seq, num_seqs;
  LoraBatch adapters;
  bool any_adapter, any_affine;  // whether one of its tokens has an adapter, and one with affines
};

/// What the layers of one forward pass share.
struct DecoderStep {
  const ExecContext& ctx;
  const DecoderConfig& config;
  const BlockShape& block;
  const DecoderWeights& weights;
  std::span<const LayerCache> caches;
  const LoraTables& lora;
  double* lora_seconds;
  StepInputs inputs;
  std::array<StepPart, 2> all_parts;
  int num_parts;
  TensorView residual, normed, delta, q, k, v, attended, gate, up;
  TensorView site_sums;         // [any size] f32, where a loaded adapter has affines, on a GPU
  TensorView all_cos, all_sin;  // of all rotations, each with room for the largest step
  int64_t num_tokens, max_tokens;

  [[nodiscard]] std::span<const StepPart> parts() const {
    return std::span(all_parts).first(static_cast<size_t>(num_parts));
  }
  /// Rows [begin, begin + count) of the table of one rotation.
  [[nodiscard]] TensorView table_of(const TensorView& all, int rotation, int64_t begin,
                                    int64_t count) const {
    return all.narrow(0, rotation * max_tokens + begin, count);
  }
  [[nodiscard]] const DecoderLayer& layer(int i) const {
    return weights.layers[static_cast<size_t>(i)];
  }

  /// The products of a site with the adapters' deltas: y [num_tokens, out_features] of each slice.
  void run_site(int layer_idx, int site, std::initializer_list<TensorView> y,
                const TensorView& x) const;
  /// Applies what comes between a block's last product and the residual.
  void finish_delta(const DeviceTensor& post_norm) const;
  /// What the first layer reads: the embedding normalised by `weight`, or itself.
  [[nodiscard]] TensorView first_input(const DeviceTensor& weight) const;
  /// Adds the delta to the residual and returns what the next mixer or MLP reads: the residual
  /// normalised by `weight`, or itself.
  [[nodiscard]] TensorView next_input(const DeviceTensor& weight) const;
  [[nodiscard]] RmsNormOptions norm_options() const;

 private:
  using Outputs = std::span<const TensorView>;

  [[nodiscard]] std::span<const SliceWeights> slices_of(int layer_idx, int site) const;
  [[nodiscard]] TensorView plain_input() const;
  void run_site_on_cpu(int layer_idx, int site, Outputs y, const TensorView& x) const;
  void run_site_on_gpu(int layer_idx, int site, Outputs y, const TensorView& x,
                       const StepPart& part) const;
  void run_affine_site_on_gpu(const LoraTable& affines, std::span<LinearSlice> slices,
                              const TensorView& x, const StepPart& part,
                              const LinearAdapters& adapters) const;
};

/// The parts of a step, the adapters of each among them; returns how many there are.
[[nodiscard]] int make_parts(const StepBatch& batch, const StepInputs& inputs,
                             const LoraTables& lora, bool has_paths,
                             std::array<StepPart, 2>& parts);

}  // namespace heddle::model
