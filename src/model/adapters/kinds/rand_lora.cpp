#include <algorithm>
#include <cstddef>
#include <vector>

#include "heddle/core/error.h"

#include "core/math.h"
#include "files/printable.h"
#include "model/adapters/kinds/kinds.h"
#include "model/weights/device_values.h"

namespace heddle::model {
namespace {

using Part = AdapterPart;

/// Extents of what a layer needs of the shared bases: A [rank, 1, narrow], B [wide, bases, rank].
struct Bases {
  int64_t rank, count, narrow, wide;

  [[nodiscard]] int64_t total_rank() const { return rank * count; }
};

/// A basis, flattened to rows of its first extent.
StoredValues rows_of_basis(const ModuleTensors& module, Part part,
                           const std::vector<int64_t>& needed) {
  const files::SafetensorsTensor& tensor = module.basis(part);
  const std::vector<int64_t>& shape = tensor.shape;
  HEDDLE_CHECK(std::ranges::equal(shape, needed, std::ranges::greater_equal{}) &&
                   shape[part == Part::kSharedA ? 1 : 2] == needed[part == Part::kSharedA ? 1 : 2],
               module.source.path(), ": tensor ", files::quote(tensor.name), " has shape ",
               files::shape_text(shape), ", a layer needs ", files::shape_text(needed), " or more");
  return {module.source.file.dtype(tensor), shape[0], shape[1] * shape[2], tensor.data.data(),
          tensor.name};
}

/// Row k * count + b: lambda[k, b] * (A[k] o gamma[b]); [total_rank, narrow].
std::vector<float> narrow_factor(const Bases& bases, const StoredValues& all_a,
                                 const StoredValues& lambda, const StoredValues& gamma) {
  const std::vector<float> a = all_a.floats(), of_lambda = lambda.floats(),
                           of_gamma = gamma.floats();
  std::vector<float> result;
  result.reserve(static_cast<size_t>(bases.total_rank() * bases.narrow));
  for (int64_t k = 0; k < bases.rank; ++k) {
    for (int64_t b = 0; b < bases.count; ++b) {
      const float factor = of_lambda[static_cast<size_t>(k * bases.count + b)];
      const float *const row = a.data() + k * all_a.columns, *const by_column =
                                                                 of_gamma.data() + b * bases.narrow;
      for (int64_t i = 0; i < bases.narrow; ++i) result.push_back(factor * row[i] * by_column[i]);
    }
  }
  return result;
}

/// B[:wide, :count] flattened; [wide, total_rank].
std::vector<float> wide_factor(const Bases& bases, const StoredValues& all_b) {
  const std::vector<float> b = all_b.narrow(0, bases.wide).floats();
  std::vector<float> result;
  result.reserve(static_cast<size_t>(bases.wide * bases.total_rank()));
  for (int64_t i = 0; i < bases.wide; ++i) {
    const auto row = b.begin() + i * all_b.columns;
    result.insert(result.end(), row, row + bases.total_rank());
  }
  return result;
}

}  // namespace

// PEFT flattens the narrow factor's ranks as [rank, count] and the wide one's as [count, rank], and
// multiplies them so: what was trained is that product.
LowRank read_rand_lora(const ModuleTensors& module) {
  const auto [in, out] = module.source.dims_of(module.place);
  const int64_t rank = module.source.config.rank_of(module.place.name());
  const Bases bases{.rank = rank,
                    .count = ceil_div(std::min(in, out), rank),
                    .narrow = std::min(in, out),
                    .wide = std::max(in, out)};
  module.check_target(Part::kLambda);
  const StoredValues lambda = module.shaped(Part::kLambda, {rank, bases.count});
  const StoredValues gamma = module.shaped(Part::kGamma, {bases.count, bases.narrow});
  module.check_fits_engine(Part::kLambda, bases.total_rank());
  const StoredValues all_a = rows_of_basis(module, Part::kSharedA, {rank, 1, bases.narrow});
  const StoredValues all_b = rows_of_basis(module, Part::kSharedB, {bases.wide, bases.count, rank});
  const auto narrow = [=] { return narrow_factor(bases, all_a, lambda, gamma); };
  const auto wide = [=] { return wide_factor(bases, all_b); };
  const int64_t total = bases.total_rank();
  if (in <= out) {
    return pair_of(module.make(lambda.name, total, in, narrow),
                   module.make(all_b.name, out, total, wide), module.scale());
  }
  return pair_of(module.make(all_b.name, total, in, [=] { return transposed(wide(), bases.wide); }),
                 module.make(lambda.name, out, total, [=] { return transposed(narrow(), total); }),
                 module.scale());
}

}  // namespace heddle::model
