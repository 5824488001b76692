#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "heddle/core/error.h"

#include "files/printable.h"
#include "model/adapters/kinds/kinds.h"

namespace heddle::model {
namespace {

using Kind = AdapterPlace::Kind;
using Part = AdapterPart;

/// What multiplies outputs [first_row, first_row + num_elements) of a module.
struct RowFactor {
  StoredValues values;
  int64_t first_row = 0;
};
using FactorsByPlace = std::map<AdapterPlace, std::vector<RowFactor>>;

/// Where the outputs of up_proj are: in gate_up_proj where the adapter has factors of that.
std::pair<AdapterPlace, int64_t> place_of_up(const AdapterSource& source, const AdapterPlace& down,
                                             const std::map<AdapterPlace, PlaceTensors>& places) {
  const AdapterPlace both{Kind::kLayer, down.layer, find_linear_module("mlp.gate_up_proj")};
  const AdapterPlace gate{Kind::kLayer, down.layer, find_linear_module("mlp.gate_proj")};
  if (places.contains(both)) return {both, source.dims_of(gate).out};
  return {{Kind::kLayer, down.layer, find_linear_module("mlp.up_proj")}, 0};
}

/// Adds the factor of one module to those of the module whose outputs it multiplies.
void sort_factor(const ModuleTensors& module, const std::map<AdapterPlace, PlaceTensors>& places,
                 FactorsByPlace& factors) {
  const AdapterSource& source = module.source;
  const StoredValues stored = module.matrix(Part::kFactor);
  if (module.place.kind != Kind::kLayer) {
    throw_error(ErrorCode::kUnsupported, source.path(), ": tensor ", files::quote(stored.name),
                " is for the head, supported by IA3: layers");
  }
  module.check_target(Part::kFactor);
  const auto [in, out] = source.dims_of(module.place);
  const StoredValues values{stored.dtype, 1, stored.num_elements(), stored.data, stored.name};
  if (stored.columns == 1) {
    (void)module.shaped(Part::kFactor, {out, 1});
    factors[module.place].push_back({values});
    return;
  }
  (void)module.shaped(Part::kFactor, {1, in});
  if (module.place.module->name != "mlp.down_proj") {
    throw_error(ErrorCode::kUnsupported, source.path(), ": tensor ", files::quote(stored.name),
                " is for inputs (feedforward_modules), supported: those of down_proj alone");
  }
  const auto [up, first_row] = place_of_up(source, module.place, places);
  factors[up].push_back({values, first_row});
}

/// A pair that adds nothing and multiplies what the module gives.
LowRank multiplied(const AdapterSource& source, const LinearDims& dims,
                   const std::vector<RowFactor>& factors) {
  const std::string_view name = factors.front().values.name;
  const auto make = [&](int64_t rows, int64_t columns, MadeValues::Make values) {
    return source.made.add(source.path(), name, rows, columns, std::move(values));
  };
  const auto zeros = [&](int64_t rows, int64_t columns) {
    return make(rows, columns,
                [=] { return std::vector<float>(static_cast<size_t>(rows * columns)); });
  };
  LowRank pair = pair_of(zeros(1, dims.in), zeros(dims.out, 1), 1.0f);
  pair.factor = make(1, dims.out, [factors, size = static_cast<size_t>(dims.out)] {
    std::vector<float> product(size, 1.0f);
    for (const RowFactor& factor : factors) {
      const std::vector<float> values = factor.values.floats();
      for (size_t i = 0; i < values.size(); ++i) {
        product[static_cast<size_t>(factor.first_row) + i] *= values[i];
      }
    }
    return product;
  });
  return pair;
}

}  // namespace

std::map<AdapterPlace, LowRank> read_ia3(const AdapterSource& source,
                                         const std::map<AdapterPlace, PlaceTensors>& places) {
  FactorsByPlace factors;
  for (const auto& [place, tensors] : places) {
    if (tensors[Part::kFactor] != nullptr) sort_factor({source, place, tensors}, places, factors);
  }
  std::map<AdapterPlace, LowRank> pairs;
  for (const auto& [place, of_place] : factors) {
    pairs.emplace(place, multiplied(source, source.dims_of(place), of_place));
  }
  return pairs;
}

}  // namespace heddle::model
