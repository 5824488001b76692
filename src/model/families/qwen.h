#pragma once

#include "model/families/family.h"

namespace heddle::model {

/// With use_sliding_window the layers from max_window_layers on see sliding_window keys.
void read_qwen_windows(const Settings& settings, DecoderConfig& config);

}  // namespace heddle::model
