#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/config/decoder_config.h"

namespace heddle::testing {

/// A trait that a family may set, and a mistake in it that a comparison must see.
struct TraitMutation {
  std::string trait;
  std::function<bool(const model::DecoderConfig&)> is_set;
  std::function<void(model::DecoderConfig&)> mutate;
};

/// One for each member of DecoderConfig that is a trait, and more where one mistake is not enough.
[[nodiscard]] const std::vector<TraitMutation>& trait_mutations();

}  // namespace heddle::testing
