#include <cstddef>
#include <vector>

#include "model/adapters/kinds/kinds.h"

namespace heddle::model {
namespace {

using Part = AdapterPart;

/// Of x and y [r, n]: row i * r + j is x[i] o y[j].
std::vector<float> products_of_rows(const StoredValues& x, const StoredValues& y) {
  const std::vector<float> of_x = x.floats(), of_y = y.floats();
  const auto rank = static_cast<size_t>(x.rows), n = static_cast<size_t>(x.columns);
  std::vector<float> products;
  products.reserve(rank * rank * n);
  for (size_t i = 0; i < rank; ++i) {
    for (size_t j = 0; j < rank; ++j) {
      for (size_t k = 0; k < n; ++k) products.push_back(of_x[i * n + k] * of_y[j * n + k]);
    }
  }
  return products;
}

/// Of x and y [n, r]: column i * r + j is x[:, i] o y[:, j].
std::vector<float> products_of_columns(const StoredValues& x, const StoredValues& y) {
  const std::vector<float> of_x = x.floats(), of_y = y.floats();
  const auto n = static_cast<size_t>(x.rows), rank = static_cast<size_t>(x.columns);
  std::vector<float> products;
  products.reserve(n * rank * rank);
  for (size_t k = 0; k < n; ++k) {
    for (size_t i = 0; i < rank; ++i) {
      for (size_t j = 0; j < rank; ++j) products.push_back(of_x[k * rank + i] * of_y[k * rank + j]);
    }
  }
  return products;
}

}  // namespace

LowRank read_loha(const ModuleTensors& module) {
  const StoredValues w1a = module.matrix(Part::kW1A), w1b = module.matrix(Part::kW1B);
  const int64_t out = w1a.rows, rank = w1a.columns, in = w1b.columns;
  module.check_rank(Part::kW1A, rank);
  module.check_target(Part::kW1A);
  (void)module.shaped(Part::kW1B, {rank, in});
  const StoredValues w2a = module.shaped(Part::kW2A, {out, rank});
  const StoredValues w2b = module.shaped(Part::kW2B, {rank, in});
  module.check_fits_engine(Part::kW1A, rank * rank);
  const StoredValues a =
      module.make(w1b.name, rank * rank, in, [w1b, w2b] { return products_of_rows(w1b, w2b); });
  const StoredValues b =
      module.make(w1a.name, out, rank * rank, [w1a, w2a] { return products_of_columns(w1a, w2a); });
  return pair_of(a, b, module.scale());
}

}  // namespace heddle::model
