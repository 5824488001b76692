#pragma once

#include <string>

#include "heddle/engine/adapter_content.h"

#include "http/message.h"
#include "routes/adapters.h"

namespace heddle::serve {

/// An adapter that a body brings, and the name that it gets.
struct BroughtAdapter {
  NewAdapter load{};
  AdapterContent content{};
};

/// Of POST /v1/load_lora_adapter?lora_name=NAME, whose body is a safetensors file. The text of
/// adapter_config.json is `adapter_config` of the file's metadata or of the query. Takes the body.
/// Throws ApiError.
[[nodiscard]] BroughtAdapter read_weights(const std::string& query, std::string body);
/// Of POST /load_lora_adapter_from_tensors, SGLang's: a config, and tensors in base64 of a
/// safetensors file; SGLang's own pickles are refused. Throws Error.
[[nodiscard]] BroughtAdapter read_tensors(const std::string& body, bool ignores_unknown);

}  // namespace heddle::serve
