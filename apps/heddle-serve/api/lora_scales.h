#pragma once

#include <string>
#include <vector>

namespace heddle::serve {

struct LoraScale {
  int64_t id = 0;  // of an adapter
  float scale = 0;
};

/// The body of POST /lora-adapters in llama.cpp's form: [{"id": 0, "scale": 0.5}, ...]; a scale
/// that is not given is 0. Throws Error.
[[nodiscard]] std::vector<LoraScale> read_lora_scales(const std::string& body);

}  // namespace heddle::serve
