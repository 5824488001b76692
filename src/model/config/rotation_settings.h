#pragma once

#include <string_view>

#include "model/config/decoder_config.h"
#include "model/config/settings.h"

namespace heddle::model {

/// What a family takes where a file does not say it.
struct RotationDefaults {
  double theta = 1e4;
  /// In folders: the member of rope_parameters for these layers ("sliding_attention"), or empty.
  std::string_view layer_type{};
  /// In folders that transformers 5 wrote it is a member of rope_parameters instead.
  SettingName theta_name{"rope_theta", "rope.freq_base"};
  bool may_scale = true;             // whether scaling that is said of no type of layer is of these
  bool scaling_is_longrope = false;  // Phi-3's "su" and "yarn" are earlier names of "longrope"
};

/// The rotation of config.head_dim elements. Kinds of scaling that are not known are refused.
[[nodiscard]] Rotation read_rotation(const Settings& settings, const DecoderConfig& config,
                                     const RotationDefaults& defaults = {});

}  // namespace heddle::model
