#include "engine/runner/loaded_receipt.h"

#include <utility>

#include "model/adapters/kinds/peft_names.h"

namespace heddle {
namespace {

using model::AdapterPlace;
using Kind = AdapterPlace::Kind;

AdapterSite site_of(const AdapterPlace& place, const model::LowRank& pair) {
  const bool is_ia3 = pair.factor.is_present();  // whose A and B add nothing
  const char* const kind = is_ia3 ? "ia3" : pair.magnitude.is_present() ? "dora" : "lora";
  return {.module = place.name(),
          .kind = kind,
          .rank = is_ia3 ? 0 : pair.rank,
          .scale = is_ia3 ? 0.0f : pair.scale,
          .dtype = name(pair.dtype)};
}

/// As NormMeter::measure has them.
void add_part(const AdapterPlace& place, const model::VocabularyPart& part,
              std::vector<AdapterSite>& sites) {
  if (part.pair) sites.push_back(site_of(place, *part.pair));
  for (const auto& [kind, values] :
       {std::pair("weight", &part.weight), {"rows", &part.token_rows}}) {
    if (!values->is_present()) continue;
    sites.push_back({.module = place.name(), .kind = kind, .dtype = name(values->dtype)});
  }
}

}  // namespace

AdapterReceipt receipt_of(const model::Adapter& adapter, std::string digest) {
  const auto [given, applied] = adapter.num_tensors();
  AdapterReceipt receipt{.digest = std::move(digest),
                         .tensors_given = given,
                         .tensors_applied = applied,
                         .is_zero = model::is_zero(adapter)};
  for (const model::AdapterPair& pair : adapter.pairs()) {
    receipt.sites.push_back(site_of({Kind::kLayer, pair.layer, pair.module}, pair));
  }
  add_part({Kind::kEmbedding}, adapter.embedding(), receipt.sites);
  add_part({Kind::kHead}, adapter.head(), receipt.sites);
  return receipt;
}

AdapterReceipt LoadedReceipt::now() const {
  const std::lock_guard lock(mutex_);
  return now_;
}

AdapterReceipt LoadedReceipt::measured() {
  const std::lock_guard measuring(measuring_);
  if (measure_) {
    const auto norms = measure_();
    if (!norms) return facts_;
    measure_ = nullptr;  // which frees the values
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < norms->size(); ++i) {
      now_.sites[i].delta_norm = (*norms)[i].delta;
      now_.sites[i].base_norm = (*norms)[i].base;
    }
  }
  return now();
}

}  // namespace heddle
