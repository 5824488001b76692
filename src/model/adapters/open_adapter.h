#pragma once

#include <memory>
#include <string>

#include "model/adapters/adapter.h"
#include "model/decoder/decoder_config.h"

namespace heddle::model {

/// Opens a folder that PEFT saved, or a GGUF file of llama.cpp's conversion, for a model.
[[nodiscard]] std::unique_ptr<Adapter> open_adapter(const std::string& path,
                                                    const DecoderConfig& config);

}  // namespace heddle::model
