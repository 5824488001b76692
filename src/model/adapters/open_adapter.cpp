#include "model/adapters/open_adapter.h"

#include <filesystem>
#include <utility>

#include "model/adapters/gguf_adapter.h"
#include "model/adapters/medusa/heads_adapter.h"
#include "model/adapters/peft_adapter.h"
#include "model/source/hub_cache.h"

namespace heddle::model {

std::unique_ptr<Adapter> open_adapter(const std::string& path, const DecoderConfig& config,
                                      const files::FolderBounds& bounds) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    return std::make_unique<GgufAdapter>(path, config, bounds);
  }
  std::shared_ptr<MedusaFiles> heads = open_heads(path, config, bounds);
  if (heads != nullptr && !std::filesystem::exists(path + "/adapter_config.json", error)) {
    return std::make_unique<HeadsAdapter>(path, std::move(heads));
  }
  const ModelDims dims = config.dims();
  auto adapter = std::make_unique<PeftAdapter>(path, bounds, &dims);
  adapter->set_heads(std::move(heads));
  return adapter;
}

std::string find_adapter_path(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error) || !is_hub_id(path)) return path;
  return find_in_hub_cache(path);
}

}  // namespace heddle::model
