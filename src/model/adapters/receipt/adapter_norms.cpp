#include "model/adapters/receipt/adapter_norms.h"

#include <algorithm>
#include <cmath>

#include "heddle/ops/linear.h"

#include "core/device_tensor.h"
#include "model/adapters/adapted_rows.h"
#include "model/adapters/slice_affine.h"
#include "model/weights/device_values.h"

namespace heddle::model {
namespace {

/// X X^T of X [rows, columns], [rows, rows].
std::vector<double> gram(std::span<const float> x, int64_t rows) {
  constexpr int64_t kPiece = 1024;
  const Device cpu{};
  const ExecContext ctx{.device = cpu, .info = query_device(cpu)};
  const int64_t columns = std::ssize(x) / rows;
  const DeviceBytes packed = allocate_zeroed(cpu, packed_bytes(WeightType::kF32, rows, kPiece));
  std::vector<float> piece, products(static_cast<size_t>(rows * rows));
  std::vector<double> sums(products.size());
  for (int64_t first = 0; first < columns; first += kPiece) {
    const int64_t width = std::min(kPiece, columns - first);
    piece.clear();
    for (int64_t row = 0; row < rows; ++row) {
      const auto from = x.begin() + row * columns + first;
      piece.insert(piece.end(), from, from + width);
    }
    const auto bytes = std::as_writable_bytes(std::span(piece));
    const size_t num_bytes = packed_bytes(WeightType::kF32, rows, width);
    pack_rows(ctx, {packed.get(), num_bytes}, WeightType::kF32, rows, width, 0, rows, bytes);
    linear(ctx,
           TensorView(reinterpret_cast<std::byte*>(products.data()), DType::kFloat32, cpu,
                      {rows, rows}),
           ConstTensorView(bytes.data(), DType::kFloat32, cpu, {rows, width}),
           {WeightType::kF32, rows, width, packed.get()});
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += products[i];
  }
  return sums;
}

}  // namespace

double squared_delta(const LowRank& pair) {
  const std::vector<double> of_a = gram(pair.stored_a().floats(), pair.rank);
  const std::vector<double> of_b =
      gram(transposed(pair.stored_b().floats(), pair.out_features), pair.rank);
  double sum = 0;
  for (size_t i = 0; i < of_a.size(); ++i) sum += of_a[i] * of_b[i];
  return double{pair.scale} * pair.scale * std::max(sum, 0.0);
}

double NormMeter::squared_base(const ExecContext& ctx, const Matrix& matrix) {
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = squared_.try_emplace(&matrix, 0.0);
  if (is_new) place->second = squared_norm(ctx, matrix);
  return place->second;
}

PlaceNorms NormMeter::norms_of(const ExecContext& ctx, const AdapterPair& pair) {
  const auto& slices = weights_.layers[static_cast<size_t>(pair.layer)].slices;
  const auto [begin, count] = block_.find(*pair.module);
  double base = 0, delta = pair.scales_rows() ? 0.0 : squared_delta(pair);
  int64_t first = 0;
  for (int i = begin; i < begin + count; ++i) {
    const Matrix& matrix = slices[static_cast<size_t>(i)].matrix;
    base += squared_base(ctx, matrix);
    if (pair.scales_rows()) {
      delta += squared_scaled_delta(ctx, matrix, rows_of(pair, first, matrix.out_features));
    }
    first += matrix.out_features;
  }
  return {std::sqrt(delta), std::sqrt(base)};
}

void NormMeter::add_part(const ExecContext& ctx, const VocabularyPart& part, const Matrix& base,
                         bool is_embedding, std::vector<PlaceNorms>& norms) {
  if (part.is_empty()) return;
  const double of_base = std::sqrt(squared_base(ctx, base));
  const auto add = [&](double squared) { norms.push_back({std::sqrt(squared), of_base}); };
  if (part.pair && !part.pair->scales_rows()) {
    add(squared_delta(*part.pair));
  } else if (part.pair && part.weight.is_present()) {
    norms.push_back({std::nullopt, of_base});
  } else if (part.pair) {
    add(is_embedding ? squared_embedding_dora_delta(ctx, base, *part.pair)
                     : squared_scaled_delta(ctx, base, *part.pair));
  }
  if (part.weight.is_present()) add(squared_difference(ctx, base, part.weight));
  if (!part.token_ids.empty()) {
    add(squared_row_difference(ctx, base, part.token_ids, part.token_rows));
  }
}

std::optional<std::vector<PlaceNorms>> NormMeter::measure(const ExecContext& ctx,
                                                          const Adapter& adapter,
                                                          const std::atomic<bool>& stop) {
  std::vector<PlaceNorms> norms;
  for (const AdapterPair& pair : adapter.pairs()) {
    if (stop) return std::nullopt;
    norms.push_back(norms_of(ctx, pair));
  }
  add_part(ctx, adapter.embedding(), weights_.embedding, true, norms);
  add_part(ctx, adapter.head(), weights_.output, false, norms);
  return norms;
}

}  // namespace heddle::model
