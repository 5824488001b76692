#pragma once

#include "files/json.h"
#include "model/adapters/adapter_config.h"

namespace heddle::model {

/// Whether adapter_config.json is MLX-LM's: the arguments of its training, without a peft_type.
[[nodiscard]] bool is_mlx_config(const files::Json& root);
/// Reads it: fine_tune_type is "lora" or "dora", and lora_parameters has rank and scale. Which
/// layers are adapted is in the tensors.
void read_mlx_config(const files::Json& root, AdapterConfig& config);

}  // namespace heddle::model
