#pragma once

#include <string>

#include "values/call.h"

namespace heddle::serve {

/// The body of /v1/embeddings in OpenAI's form, with vLLM's fields.
[[nodiscard]] ValuesCall read_embeddings(const std::string& body, const app::ServeOptions& options);
/// The body of LoRAX's /embed: {"inputs": "text", "parameters": {"adapter_id": "sql"}}.
[[nodiscard]] ValuesCall read_lorax_embed(const std::string& body,
                                          const app::ServeOptions& options);
/// The numbers as base64 of f32 in the order of bytes that little-endian machines have.
[[nodiscard]] std::string base64_of(std::span<const float> values);

}  // namespace heddle::serve
