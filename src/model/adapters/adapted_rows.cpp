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

/// scale * B A as add_low_rank_rows takes it, for a weight that the pair adapts.
struct RowFactors {
  DeviceTensor a, b;  // [out_features of the weight, rank], [rank, in_features of the weight]

  RowFactors(const ExecContext& ctx, const Matrix& weight, std::span<const float> of_rows,
             std::span<const float> of_columns, int64_t rank)
      : a(tensor_of(ctx, of_rows, {weight.out_features, rank})),
        b(tensor_of(ctx, of_columns, {rank, weight.in_features})) {}
  /// Of a linear layer, whose rows are B's.
  static RowFactors of_linear(const ExecContext& ctx, const Matrix& weight, const LowRank& pair) {
    return {ctx, weight, pair.stored_b().floats(), pair.stored_a().floats(), pair.rank};
  }
  /// Of an embedding, whose rows are A's columns.
  static RowFactors of_embedding(const ExecContext& ctx, const Matrix& weight,
                                 const LowRank& pair) {
    return {ctx, weight, transposed(pair.stored_a().floats(), pair.rank),
            transposed(pair.stored_b().floats(), pair.out_features), pair.rank};
  }
};

/// for_pieces with scale * B A added.
template <class Take>
void for_adapted_pieces(const ExecContext& ctx, const Matrix& weight, const RowFactors& factors,
                        float scale, const Take& take) {
  for_pieces(ctx, weight, [&](const Piece& piece) {
    add_low_rank_rows(ctx, piece.rows, piece.ids, factors.a.view(), factors.b.view(), {}, scale);
    take(piece);
    return true;
  });
}

/// sum (factor * (W + scale B A) - W)^2, factor(row, column) of the weight.
template <class Factor>
double squared_change(const ExecContext& ctx, const Matrix& weight, const RowFactors& factors,
                      float scale, const Factor& factor) {
  double sum = 0;
  for_pieces(ctx, weight, [&](const Piece& piece) {
    const std::vector<float> before = host_floats(ctx, piece.rows);
    add_low_rank_rows(ctx, piece.rows, piece.ids, factors.a.view(), factors.b.view(), {}, scale);
    const std::vector<float> after = host_floats(ctx, piece.rows);
    const auto columns = static_cast<size_t>(weight.in_features);
    for (size_t i = 0; i < before.size(); ++i) {
      const size_t row = static_cast<size_t>(piece.first) + i / columns;
      const double change = double{factor(row, i % columns)} * after[i] - before[i];
      sum += change * change;
    }
    return true;
  });
  return sum;
}

double sum_of_squares(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return sum;
}

}  // namespace

std::vector<float> dora_factors(const ExecContext& ctx, const Matrix& weight, const LowRank& pair) {
  const DeviceTensor factors = tensor_of(ctx, pair.magnitude.floats(), {weight.out_features});
  for_adapted_pieces(
      ctx, weight, RowFactors::of_linear(ctx, weight, pair), pair.scale, [&](const Piece& piece) {
        divide_by_lengths(ctx, factors.view().narrow(0, piece.first, piece.count()), piece.rows);
      });
  return host_floats(ctx, factors.view());
}

std::vector<float> embedding_dora_factors(const ExecContext& ctx, const Matrix& weight,
                                          const LowRank& pair) {
  const auto columns = static_cast<size_t>(weight.in_features);
  std::vector<double> sums(columns);
  const RowFactors of_rows = RowFactors::of_embedding(ctx, weight, pair);
  for_adapted_pieces(ctx, weight, of_rows, pair.scale, [&](const Piece& piece) {
    const std::vector<float> values = host_floats(ctx, piece.rows);
    for (size_t i = 0; i < values.size(); ++i) sums[i % columns] += double{values[i]} * values[i];
  });
  std::vector<float> factors = pair.magnitude.floats();
  for (size_t k = 0; k < columns; ++k) {
    factors[k] = static_cast<float>(double{factors[k]} / std::sqrt(sums[k]));
  }
  return factors;
}

double squared_norm(const ExecContext& ctx, const Matrix& weight) {
  const std::vector<float> ones(static_cast<size_t>(weight.out_features), 1.0f);
  const DeviceTensor inverse = tensor_of(ctx, ones, {weight.out_features});
  for_pieces(ctx, weight, [&](const Piece& piece) {
    divide_by_lengths(ctx, inverse.view().narrow(0, piece.first, piece.count()), piece.rows);
    return true;
  });
  double sum = 0;
  for (const float value : host_floats(ctx, inverse.view())) sum += 1.0 / (double{value} * value);
  return sum;
}

double squared_scaled_delta(const ExecContext& ctx, const Matrix& weight, const LowRank& pair) {
  const std::vector<float> factors =
      pair.factor.is_present() ? pair.factor.floats() : dora_factors(ctx, weight, pair);
  return squared_change(ctx, weight, RowFactors::of_linear(ctx, weight, pair), pair.scale,
                        [&](size_t row, size_t) { return factors[row]; });
}

double squared_embedding_dora_delta(const ExecContext& ctx, const Matrix& weight,
                                    const LowRank& pair) {
  const std::vector<float> factors = embedding_dora_factors(ctx, weight, pair);
  return squared_change(ctx, weight, RowFactors::of_embedding(ctx, weight, pair), pair.scale,
                        [&](size_t, size_t column) { return factors[column]; });
}

double squared_difference(const ExecContext& ctx, const Matrix& weight,
                          const StoredValues& values) {
  double sum = 0;
  for_pieces(ctx, weight, [&](const Piece& piece) {
    const int64_t count = std::min(piece.count(), values.rows - piece.first);
    if (count <= 0) return false;
    std::vector<float> changes = values.narrow(piece.first, count).floats();
    const std::vector<float> base = host_floats(ctx, piece.rows.narrow(0, 0, count));
    for (size_t i = 0; i < changes.size(); ++i) changes[i] -= base[i];
    sum += sum_of_squares(changes);
    return true;
  });
  const int64_t more = values.rows - weight.out_features;
  if (more > 0) sum += sum_of_squares(values.narrow(weight.out_features, more).floats());
  return sum;
}

double squared_row_difference(const ExecContext& ctx, const Matrix& weight,
                              std::span<const int32_t> ids, const StoredValues& rows) {
  std::vector<int32_t> known;  // the first row for ids that W does not have
  for (const int32_t id : ids) known.push_back(id < weight.out_features ? id : 0);
  const DeviceTensor of_base(ctx.device, DType::kFloat32, {std::ssize(ids), weight.in_features});
  const DeviceTensor id_vector(ctx, std::span(std::as_const(known)));
  embedding(ctx, of_base.view(), id_vector.view(), weight);
  const std::vector<float> base = host_floats(ctx, of_base.view());
  std::vector<float> changes = rows.floats();
  for (size_t i = 0; i < changes.size(); ++i) {
    const bool has_base = ids[i / static_cast<size_t>(weight.in_features)] < weight.out_features;
    if (has_base) changes[i] -= base[i];
  }
  return sum_of_squares(changes);
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
