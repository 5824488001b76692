#include "model/adapters/adapted_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "heddle/core/dispatch.h"

#include "core/device_tensor.h"

namespace heddle::model {
namespace {

constexpr int64_t kPieceRows = 128;  // rows of a weight that are unpacked at a time

/// Calls rows(first, values [count, in_features]) for pieces that make up the weight, in order,
/// while it returns true. The values are host memory.
template <class Rows>
void for_pieces(const ExecContext& ctx, const Matrix& weight, Rows&& rows) {
  const DeviceTensor unpacked(ctx.device, DType::kFloat32, {kPieceRows, weight.in_features});
  std::vector<int32_t> ids(static_cast<size_t>(kPieceRows));
  std::vector<float> copied;  // from a GPU
  for (int64_t first = 0; first < weight.out_features; first += kPieceRows) {
    const int64_t count = std::min(kPieceRows, weight.out_features - first);
    std::iota(ids.begin(), ids.end(), static_cast<int32_t>(first));
    const std::span used(std::as_const(ids).data(), static_cast<size_t>(count));
    const DeviceTensor id_vector(ctx, used);
    embedding(ctx, unpacked.rows(count), id_vector.view(), weight);
    const auto size = static_cast<size_t>(count * weight.in_features);
    std::span<float> values;
    if (ctx.device.type == DeviceType::kCpu) {
      values = {unpacked.view().data<float>(), size};
    } else {
      copied.resize(size);
      values = copied;
      copy_to_host(ctx, values, unpacked.rows(count));
    }
    if (!rows(first, values)) return;
  }
}

/// row += sum_r factors[r] * others[r], the factors `stride` elements apart.
void add_rows(std::span<float> row, const float* factors, size_t stride, float scale,
              std::span<const float> others) {
  for (size_t r = 0; r * row.size() < others.size(); ++r) {
    const float factor = scale * factors[r * stride];
    const float* const other = others.data() + r * row.size();
    for (size_t k = 0; k < row.size(); ++k) row[k] += factor * other[k];
  }
}

}  // namespace

std::vector<float> dora_factors(const ExecContext& ctx, const Matrix& weight, const LowRank& pair) {
  const std::vector<float> a = pair.stored_a().floats(), b = pair.stored_b().floats();
  std::vector<float> factors = pair.magnitude.floats();
  const auto columns = static_cast<size_t>(weight.in_features);
  for_pieces(ctx, weight, [&](int64_t first, std::span<float> values) {
    parallel_for(ctx, std::ssize(values) / weight.in_features, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const std::span row = values.subspan(static_cast<size_t>(i) * columns, columns);
        add_rows(row, b.data() + (first + i) * pair.rank, 1, pair.scale, a);
        double sum = 0;
        for (const float value : row) sum += double{value} * value;
        float& factor = factors[static_cast<size_t>(first + i)];
        factor = static_cast<float>(double{factor} / std::sqrt(sum));
      }
    });
    return true;
  });
  return factors;
}

std::vector<float> embedding_dora_factors(const ExecContext& ctx, const Matrix& weight,
                                          const LowRank& pair) {
  const auto rank = static_cast<size_t>(pair.rank);
  const auto columns = static_cast<size_t>(weight.in_features);
  const std::vector<float> a = pair.stored_a().floats(), stored_b = pair.stored_b().floats();
  std::vector<float> b(stored_b.size());  // [rank, hidden_size]
  for (size_t i = 0; i < b.size(); ++i) b[i % rank * columns + i / rank] = stored_b[i];
  std::vector<double> sums(columns);
  for_pieces(ctx, weight, [&](int64_t first, std::span<float> values) {
    for (size_t i = 0; i * columns < values.size(); ++i) {
      const std::span row = values.subspan(i * columns, columns);
      add_rows(row, a.data() + static_cast<size_t>(first) + i,
               static_cast<size_t>(weight.out_features), pair.scale, b);
      for (size_t k = 0; k < columns; ++k) sums[k] += double{row[k]} * row[k];
    }
    return true;
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
  for_pieces(ctx, weight, [&](int64_t first, std::span<float> piece) {
    const int64_t count = std::ssize(piece) / weight.in_features;
    std::vector<float> expected = values.narrow(first, count).floats();
    if (weight.rows) {
      dispatch_dtype<half, bfloat16>(weight.rows.dtype(), "a matrix", [&]<class T>() {
        for (float& value : expected) value = to_float(from_float<T>(value));
      });
    }
    is_same = std::ranges::equal(piece, expected);
    return is_same;
  });
  return is_same;
}

std::vector<float> host_floats(const ExecContext& ctx, const ConstTensorView& vector) {
  std::vector<float> floats;
  dispatch_dtype<float, half, bfloat16>(vector.dtype(), "a vector", [&]<class T>() {
    std::vector<T> values(static_cast<size_t>(vector.num_elements()));
    copy_to_host(ctx, std::span(values), vector);
    for (const T& value : values) floats.push_back(to_float(value));
  });
  return floats;
}

}  // namespace heddle::model
