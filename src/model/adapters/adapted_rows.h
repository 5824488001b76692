#pragma once

#include <cstdint>
#include <span>
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

// Sums of squares over a matrix, which are those of its Frobenius norm.

/// |W|^2.
[[nodiscard]] double squared_norm(const ExecContext& ctx, const Matrix& weight);
/// |W' - W|^2, W' the weight of a linear layer with DoRA or a factor, or of the embedding with
/// DoRA.
[[nodiscard]] double squared_scaled_delta(const ExecContext& ctx, const Matrix& weight,
                                          const LowRank& pair);
[[nodiscard]] double squared_embedding_dora_delta(const ExecContext& ctx, const Matrix& weight,
                                                  const LowRank& pair);
/// |values - W|^2 over the rows of `values`; those that W does not have count as they are.
[[nodiscard]] double squared_difference(const ExecContext& ctx, const Matrix& weight,
                                        const StoredValues& values);
/// The same where the rows stand for the rows `ids` of W; an id that W does not have counts so.
[[nodiscard]] double squared_row_difference(const ExecContext& ctx, const Matrix& weight,
                                            std::span<const int32_t> ids, const StoredValues& rows);

}  // namespace heddle::model
