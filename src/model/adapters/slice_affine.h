#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "heddle/core/context.h"
#include "heddle/ops/lora.h"

#include "model/adapters/adapter.h"

namespace heddle::model {

struct DecoderWeights;

/// What an adapter does to one slice of a site once its delta is added: y = factor y + offset. DoRA
/// has both where the model has a bias c, since c stays out of the scaling: factor f, offset
/// (1 - f) c. A bias of lora_B is an offset.
struct SliceAffine {
  int64_t layer;
  Projection projection;
  std::vector<float> factor, offset;  // [out_features], or empty: 1 and 0
};

/// What those of an adapter take, at most.
[[nodiscard]] int64_t affine_bytes(const Adapter& adapter);
/// Those of an adapter that fits the model. Computes the norms of DoRA from the weights as they are
/// packed. On the CPU alone.
[[nodiscard]] std::vector<SliceAffine> slice_affines(const ExecContext& ctx, const Adapter& adapter,
                                                     const ModelDims& dims,
                                                     const DecoderWeights& weights);

/// Where the values of a SliceAffine lie.
struct AffineView {
  const float *factor = nullptr, *offset = nullptr;
};
/// [slot], by slice of a site.
using SiteAffines = std::vector<std::array<AffineView, 3>>;

/// y = factor y + scale offset in the rows whose slot has either, scale that of a pair, else 1; no
/// other row is touched. The batch has slot ids or pairs, i32; a factor is for rows whose scale
/// is 1.
void apply_affines(const ExecContext& ctx, std::span<const LoraSlice> slices,
                   const LoraBatch& batch, const SiteAffines& affines);

}  // namespace heddle::model
