#pragma once

#include <memory>
#include <string>

#include "files/bounded_open.h"
#include "model/adapters/adapter.h"
#include "model/config/decoder_config.h"

namespace heddle::model {

/// Opens a folder that PEFT saved, one of Medusa heads, or both in one, or a GGUF file of
/// llama.cpp's conversion, for a model. Its files lie within the bounds. The values exist after
/// Adapter::load, those of heads after MedusaFiles::load.
[[nodiscard]] std::unique_ptr<Adapter> open_adapter(const std::string& path,
                                                    const DecoderConfig& config,
                                                    const files::FolderBounds& bounds = {});

/// The path where there is a file or folder, else the folder of the adapter of this name
/// ("org/name") in the local Hugging Face cache. An error where it is not there tells the command
/// that downloads it; of what is no name the path comes back.
[[nodiscard]] std::string find_adapter_path(const std::string& path);

}  // namespace heddle::model
