#include "model/adapters/adapted_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "heddle/core/dispatch.h"
#include "heddle/ops/adapter_parts.h"

#include "model/weights/device_values.h"

namespace heddle::model {
namespace {

constexpr int64_t kPieceRows = 128;  // rows of a weight that are unpacked at a time

/// Neighbouring rows of a weight in f32, and their numbers, on the context's device.
struct Piece {
  int64_t first;
  TensorView rows;      // [count, in_features]
  ConstTensorView ids;  // [count] i32

  [[nodiscard]] int64_t count() const { return rows.size(0); }
};

/// Calls take(piece) for pieces that make up the weight, in order, while it returns true.
template <class Take>
void for_pieces(const ExecContext& ctx, const Matrix& weight, const Take& take) {
  const DeviceTensor unpacked(ctx.device, DType::kFloat32, {kPieceRows, weight.in_features});
  std::vector<int32_t> ids(static_cast<size_t>(weight.out_features));
  std::iota(ids.begin(), ids.end(), 0);
  const DeviceTensor id_vector(ctx, std::span(std::as_const(ids)));
  for (int64_t first = 0; first < weight.out_features; first += kPieceRows) {
    const int64_t count = std::min(kPieceRows, weight.out_features - first);
    const Piece piece{first, unpacked.rows(count), id_vector.view().narrow(0, first, count)};
    embedding(ctx, piece.rows, piece.ids, weight);
    if (!take(piece)) return;
  }
}

/// The same with scale * a[i] b added to row i: a [out_features, rank], b [rank, in_features].
template <class Take>
void for_adapted_pieces(const ExecContext& ctx, const Matrix& weight, std::span<const float> a,
                        std::span<const float> b, const LowRank& pair, const Take& take) {
  const DeviceTensor a_rows = tensor_of(ctx, a, {weight.out_features, pair.rank});
  const DeviceTensor b_rows = tensor_of(ctx, b, {pair.rank, weight.in_features});
  for_pieces(ctx, weight, [&](const Piece& piece) {
    add_low_rank_rows(ctx, piece.rows, piece.ids, a_rows.view(), b_rows.view(), {}, pair.scale);
    take(piece);
    return true;
  });
}

}  // namespace

std::vector<float> dora_factors(const ExecContext& ctx, const Matrix& weight, const LowRank& pair) {
  const DeviceTensor factors = tensor_of(ctx, pair.magnitude.floats(), {weight.out_features});
  for_adapted_pieces(ctx, weight, pair.stored_b().floats(), pair.stored_a().floats(), pair,
                     [&](const Piece& piece) {
                       divide_by_lengths(ctx, factors.view().narrow(0, piece.first, piece.count()),
                                         piece.rows);
                     });
  return host_floats(ctx, factors.view());
}

std::vector<float> embedding_dora_factors(const ExecContext& ctx, const Matrix& weight,
                                          const LowRank& pair) {
  const auto columns = static_cast<size_t>(weight.in_features);
  std::vector<double> sums(columns);
  const std::vector<float> a = transposed(pair.stored_a().floats(), pair.rank);
  const std::vector<float> b = transposed(pair.stored_b().floats(), pair.out_features);
  for_adapted_pieces(ctx, weight, a, b, pair, [&](const Piece& piece) {
    const std::vector<float> values = host_floats(ctx, piece.rows);
    for (size_t i = 0; i < values.size(); ++i) sums[i % columns] += double{values[i]} * values[i];
  });
  std::vector<float> factors = pair.magnitude.floats();
  for (size_t k = 0; k < columns; ++k) {
    factors[k] = static_cast<float>(double{factors[k]} / std::sqrt(sums[k]));
  }
  return factors;
}

bool has_rows(const ExecContext& ctx, const Matrix& weight, const StoredValues& values) {
  bool is_same = weight.out_features == values.rows && weight.in_features == values.columns;
  if (!is_same) return false;
  for_pieces(ctx, weight, [&](const Piece& piece) {
    std::vector<float> expected = values.narrow(piece.first, piece.count()).floats();
    if (weight.rows) {
      dispatch_dtype<half, bfloat16>(weight.rows.dtype(), "a matrix", [&]<class T>() {
        for (float& value : expected) value = to_float(from_float<T>(value));
      });
    }
    is_same = host_floats(ctx, piece.rows) == expected;
    return is_same;
  });
  return is_same;
}

}  // namespace heddle::model
