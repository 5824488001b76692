#pragma once

#include <array>
#include <functional>
#include <span>

#include "heddle/core/context.h"
#include "heddle/ops/kv_cache.h"
#include "heddle/ops/linear_site.h"

#include "model/adapters/lora_tables.h"
#include "model/decoder/decoder.h"
#include "model/decoder/step_batch.h"
#include "model/weights/matrix.h"

namespace heddle::model {

/// One of the products of a site of the model.
struct SiteProduct {
  TensorView y;  // [num_tokens, out_features]
  const Matrix& matrix;
  ConstTensorView bias{};
};

/// Neighbouring tokens of a step that take one path. On the CPU, where paths do not differ, all
/// tokens are one part.
struct StepPart {
  LinearPath path;
  int64_t first_token, num_tokens, first_seq, num_seqs;
  LoraBatch adapters;
  bool any_adapter, any_affine;  // whether one of its tokens has an adapter, and one with affines
};

/// What the layers of one forward pass share.
struct Decoder::Step {
  const ExecContext& ctx;
  const std::function<PagedKv(int)>& cache;
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
  /// The products of a site, and the adapters' deltas.
  void run_site(int layer, LoraSite site, std::span<const SiteProduct> products,
                const TensorView& x) const;

 private:
  void run_site_on_cpu(int layer, LoraSite site, std::span<const SiteProduct> products,
                       const TensorView& x) const;
  void run_site_on_gpu(int layer, LoraSite site, std::span<const SiteProduct> products,
                       const TensorView& x, const StepPart& part) const;
  void run_affine_site_on_gpu(const LoraTable& affines, std::span<LinearSlice> slices,
                              const TensorView& x, const StepPart& part,
                              const LinearAdapters& adapters) const;
};

/// The parts of a step, the adapters of each among them; returns how many there are.
int make_parts(const StepBatch& batch, const StepInputs& inputs, const LoraTables& lora,
               bool has_paths, std::array<StepPart, 2>& parts);

}  // namespace heddle::model
