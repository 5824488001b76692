#pragma once

#include <string>

#include "model/config/decoder_config.h"

/// A Llama block as DecoderConfig::block makes it.
namespace heddle::model::llama {

// Indices of slices.
inline constexpr int kQ = 0, kK = 1, kV = 2, kO = 3, kGate = 4, kUp = 5, kDown = 6;
inline constexpr int kNumSlices = 7;
// Indices of sites.
inline constexpr int kQkvSite = 0, kOSite = 1, kDownSite = 3, kNumSites = 4;

/// "self_attn.q_proj".
inline std::string module_name(int slice) {
  return std::string(DecoderConfig{}.block().slice(slice).module->name);
}
/// "q_proj".
inline std::string target_name(int slice) {
  const std::string name = module_name(slice);
  return name.substr(name.find('.') + 1);
}

/// All of a head is rotated.
inline DecoderConfig rotating(DecoderConfig config) {
  config.rotations[0].params.rotary_dim = static_cast<int>(config.head_dim);
  return config;
}

}  // namespace heddle::model::llama
