#pragma once

#include <cstdint>
#include <vector>

#include "heddle/core/context.h"

#include "model/adapters/adapter.h"

namespace heddle::model {

struct DecoderWeights;

/// What an adapter does to one slice of a site once its delta is added: y = factor y + offset, as
/// apply_affines takes it. IA3 has a factor alone. DoRA has both where the model has a bias c,
/// since c stays out of the scaling: factor f, offset (1 - f) c. A bias of lora_B is an offset with
/// factors of 1, and so is what a bias in place of the layer's own differs from it.
struct SliceAffine {
  int64_t layer;
  int slice;                  // of BlockShape::slices
  std::vector<float> values;  // [1 or 2, out_features]: the factor, and the offset if any
};

/// Rows [first, first + count) of what an adapter makes of a module: of one slice, say.
[[nodiscard]] LowRank rows_of(const LowRank& pair, int64_t first, int64_t count);

/// What those of an adapter take, at most.
[[nodiscard]] int64_t affine_bytes(const Adapter& adapter);
/// Those of an adapter that fits the model, in the order of its pairs. Computes the norms of DoRA
/// from the weights as they lie on the context's device.
[[nodiscard]] std::vector<SliceAffine> slice_affines(const ExecContext& ctx, const Adapter& adapter,
                                                     const BlockShape& block,
                                                     const DecoderWeights& weights);

}  // namespace heddle::model
