#pragma once

#include <vector>

#include "heddle/core/context.h"

#include "model/adapters/adapter.h"
#include "model/weights/matrix.h"

namespace heddle::model {

// What is computed of a base model's weights, where they lie, when an adapter is loaded.

/// The factors of DoRA at a linear layer: magnitude / |row of (W + scale B A)|, [out_features].
[[nodiscard]] std::vector<float> dora_factors(const ExecContext& ctx, const Matrix& weight,
                                              const LowRank& pair);
/// At the embedding W [num_tokens, hidden_size]: magnitude / |column of (W + scale (B A)^T)|,
/// [hidden_size].
[[nodiscard]] std::vector<float> embedding_dora_factors(const ExecContext& ctx,
                                                        const Matrix& weight, const LowRank& pair);
/// Whether the weight has these values and no others; where it lies as rows, these values rounded
/// to its dtype.
[[nodiscard]] bool has_rows(const ExecContext& ctx, const Matrix& weight,
                            const StoredValues& values);

}  // namespace heddle::model
