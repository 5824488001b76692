#include "model/adapters/open_adapter.h"

#include <filesystem>

#include "model/adapters/gguf_adapter.h"
#include "model/adapters/peft_adapter.h"

namespace heddle::model {

std::unique_ptr<Adapter> open_adapter(const std::string& path, const DecoderConfig& config) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    return std::make_unique<GgufAdapter>(path, config);
  }
  return std::make_unique<PeftAdapter>(path);
}

}  // namespace heddle::model
