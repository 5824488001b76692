#include <cstddef>
#include <utility>
#include <vector>

#include "heddle/core/error.h"

#include "files/printable.h"
#include "model/adapters/kinds/kinds.h"

namespace heddle::model {
namespace {

using Part = AdapterPart;

void check_halves(const ModuleTensors& module) {
  const PlaceTensors& tensors = module.tensors;
  const std::string& path = module.source.path();
  const auto *const a = tensors[Part::kA], *const b = tensors[Part::kB];
  for (const Part part :
       {Part::kB, Part::kBias, Part::kMagnitude, Part::kLayerBias, Part::kVelora, Part::kLatent}) {
    HEDDLE_CHECK(a != nullptr || tensors[part] == nullptr, path, ": tensor ",
                 files::quote(tensors[part]->name), " has no partner ",
                 files::quote(peft_name(module.place, Part::kA)));
  }
  HEDDLE_CHECK(b != nullptr, path, ": tensor ", files::quote(a->name), " has no partner ",
               files::quote(peft_name(module.place, Part::kB)));
  (void)module.matrix(Part::kA);
  (void)module.matrix(Part::kB);
  HEDDLE_CHECK(a->shape[0] == b->shape[1], path, ": tensor ", files::quote(a->name), " has shape ",
               files::shape_text(a->shape), ", rank ", a->shape[0], ", its partner lora_B ",
               files::shape_text(b->shape), ", rank ", b->shape[1]);
}

/// The adapter's values for each output of a product.
StoredValues read_vector(const ModuleTensors& module, Part part, const char* field, bool is_set) {
  if (!module.has_part(part, field, is_set)) {
    HEDDLE_CHECK(!is_set, module.source.path(), ": has no tensor ",
                 files::quote(peft_name(module.place, part)), ", yet ", field, " of ",
                 module.source.config.path, " is true");
    return {};
  }
  return module.shaped(part, {module.tensors[Part::kB]->shape[0]});
}

/// R A, as f32.
StoredValues with_latent(const ModuleTensors& module, const StoredValues& a) {
  const StoredValues latent = module.shaped(Part::kLatent, {a.rows, a.rows});
  return module.make(latent.name, a.rows, a.columns, [a, latent] {
    const std::vector<float> of_a = a.floats(), of_latent = latent.floats();
    const auto rank = static_cast<size_t>(a.rows), features = static_cast<size_t>(a.columns);
    std::vector<float> product(of_a.size());
    for (size_t i = 0; i < rank; ++i) {
      for (size_t k = 0; k < rank; ++k) {
        const float factor = of_latent[i * rank + k];
        for (size_t n = 0; n < features; ++n) {
          product[i * features + n] += factor * of_a[k * features + n];
        }
      }
    }
    return product;
  });
}

}  // namespace

LowRank pair_of(const StoredValues& a, const StoredValues& b, float scale) {
  return {.rank = a.rows,
          .in_features = a.columns,
          .out_features = b.rows,
          .scale = scale,
          .dtype = a.dtype,
          .a = a.data,
          .b = b.data,
          .a_name = a.name,
          .b_name = b.name};
}

LowRank read_lora(const ModuleTensors& module) {
  const AdapterConfig& config = module.source.config;
  const PlaceTensors& tensors = module.tensors;
  check_halves(module);
  StoredValues a = module.matrix(Part::kA), b = module.matrix(Part::kB);
  module.check_rank(Part::kA, a.rows);
  module.check_fits_engine(Part::kA, a.rows);
  module.check_target(Part::kA);
  if (tensors[Part::kLatent] != nullptr) a = with_latent(module, a);
  if (a.dtype != b.dtype) {  // PEFT computes in f32
    a = module.source.made.add_floats(module.source.path(), a);
    b = module.source.made.add_floats(module.source.path(), b);
  }
  LowRank pair = pair_of(a, b, module.scale());
  pair.magnitude = read_vector(module, Part::kMagnitude, "use_dora", config.use_dora);
  pair.bias = read_vector(module, Part::kBias, "lora_bias",
                          config.lora_bias && module.place.kind != AdapterPlace::Kind::kEmbedding);
  if (module.has_part(Part::kLayerBias, "bias", config.trains_bias, "\"none\"")) {
    pair.layer_bias = module.shaped(Part::kLayerBias, {pair.out_features});
  }
  (void)module.has_part(Part::kVelora, "velora_config", config.uses_velora, "not set");
  return pair;
}

}  // namespace heddle::model
