#include "model/adapters/kinds/kinds.h"
#include "model/weights/device_values.h"

namespace heddle::model {

LowRank read_mlx(const ModuleTensors& module) {
  using Part = AdapterPart;
  const StoredValues stored_a = module.matrix(Part::kTransposedA);
  const int64_t rank = stored_a.columns;
  const StoredValues stored_b = module.matrix(Part::kTransposedB);
  const int64_t out = stored_b.columns;
  (void)module.shaped(Part::kTransposedB, {rank, out});
  module.check_rank(Part::kTransposedA, rank);
  module.check_fits_engine(Part::kTransposedA, rank);
  const auto flipped = [&](const StoredValues& values) {
    return module.make(values.name, values.columns, values.rows,
                       [values] { return transposed(values.floats(), values.rows); });
  };
  LowRank pair = pair_of(flipped(stored_a), flipped(stored_b), module.scale());
  const bool is_dora = module.source.config.use_dora;
  if (module.has_part(Part::kMagnitude, "fine_tune_type", is_dora, "\"lora\"") || is_dora) {
    pair.magnitude = module.shaped(Part::kMagnitude, {out});
  }
  return pair;
}

}  // namespace heddle::model
