#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "heddle/core/error.h"
#include "heddle/ops/lora.h"

#include "files/printable.h"
#include "model/adapters/kinds/kinds.h"

namespace heddle::model {
namespace {

using Part = AdapterPart;

/// The widths of the widest modules that the adapter is for, each by itself.
LinearDims widest(const AdapterSource& source) {
  const ModelDims& model = source.model();
  LinearDims most;
  const auto consider = [&](bool is_target, const LinearDims& dims) {
    if (is_target) most = {std::max(most.in, dims.in), std::max(most.out, dims.out)};
  };
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    for (const auto& [module, slices] : model.block.stored()) {
      const AdapterPlace place{AdapterPlace::Kind::kLayer, layer, module};
      consider(source.config.targets(place.name()), model.block.dims_of(slices));
    }
  }
  const AdapterPlace head{AdapterPlace::Kind::kHead};
  consider(source.config.targets_vocabulary(head.name()), source.dims_of(head));
  return most;
}

/// What torch's uniform_ makes on the CPU of Kaiming's bound for ReLU: 24 bits of each number of
/// the generator, which has drawn `skipped` before.
std::vector<float> kaiming_uniform(int64_t key, int64_t skipped, int64_t rows, int64_t columns) {
  std::mt19937 generator(static_cast<uint32_t>(key));
  generator.discard(static_cast<unsigned long long>(skipped));
  const double bound = std::sqrt(3.0) * (std::sqrt(2.0) / std::sqrt(static_cast<double>(columns)));
  const auto low = static_cast<float>(-bound), high = static_cast<float>(bound);
  std::vector<float> values(static_cast<size_t>(rows * columns));
  for (float& value : values) {
    const auto bits = static_cast<float>(generator() & 0xffffff);
    value = std::fma(bits * 0x1p-24f, high - low, low);
  }
  return values;
}

/// A shared matrix that has at least these extents.
void check_holds(const AdapterSource& source, const StoredValues& matrix, int64_t rows,
                 int64_t columns) {
  HEDDLE_CHECK(matrix.rows >= rows && matrix.columns >= columns, source.path(), ": tensor ",
               files::quote(matrix.name), " has shape [", matrix.rows, ", ", matrix.columns,
               "], a layer needs [", rows, ", ", columns, "] or more");
}

/// The first `rows` rows, cut to the first `columns`, row i times by_row[i].
std::vector<float> scaled(const StoredValues& matrix, int64_t rows, int64_t columns,
                          const StoredValues& by_row) {
  const std::vector<float> values = matrix.narrow(0, rows).floats(), factors = by_row.floats();
  std::vector<float> result;
  result.reserve(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows; ++i) {
    const float* const row = values.data() + i * matrix.columns;
    for (int64_t k = 0; k < columns; ++k) {
      result.push_back(factors[static_cast<size_t>(i)] * row[k]);
    }
  }
  return result;
}

}  // namespace

VeraProjections vera_projections(const AdapterSource& source) {
  if (source.config.saves_projection) {
    return {source.shared_matrix(AdapterPart::kSharedA),
            source.shared_matrix(AdapterPart::kSharedB)};
  }
  for (const Part part : {Part::kSharedA, Part::kSharedB}) {
    HEDDLE_CHECK(source.shared[part] == nullptr, source.path(), ": tensor ",
                 files::quote(shared_name(part, source.config.method)),
                 " is present, but save_projection of ", source.config.path, " is false");
  }
  const int64_t key = source.config.projection_key, rank = source.config.r;
  if (rank > kMaxLoraRank) {
    throw_error(ErrorCode::kUnsupported, source.config.path, ": r is ", rank, ", supported: up to ",
                kMaxLoraRank);
  }
  const auto [in, out] = widest(source);
  const auto drawn = [&](int64_t skipped, int64_t rows, int64_t columns) {
    return source.made.add(source.path(), "projection_prng_key", rows, columns,
                           [=] { return kaiming_uniform(key, skipped, rows, columns); });
  };
  return {drawn(0, rank, in), drawn(rank * in, out, rank)};
}

LowRank read_vera(const ModuleTensors& module) {
  const auto [in, out] = module.source.dims_of(module.place);
  const int64_t rank = module.source.config.r;
  module.check_target(Part::kLambdaD);
  const StoredValues lambda_d = module.shaped(Part::kLambdaD, {rank});
  const StoredValues lambda_b = module.shaped(Part::kLambdaB, {out});
  module.check_fits_engine(Part::kLambdaD, rank);
  const auto& [all_a, all_b] = module.source.vera;
  check_holds(module.source, all_a, rank, in);
  check_holds(module.source, all_b, out, rank);
  const StoredValues a = module.make(
      lambda_d.name, rank, in,
      [all = all_a, lambda_d, rank, columns = in] { return scaled(all, rank, columns, lambda_d); });
  const StoredValues b = module.make(
      lambda_b.name, out, rank,
      [all = all_b, lambda_b, rank, rows = out] { return scaled(all, rows, rank, lambda_b); });
  return pair_of(a, b, 1.0f);
}

}  // namespace heddle::model
