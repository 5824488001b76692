#include "engine/face/stored_pages.h"

#include <string>

#include "heddle/core/error.h"

#include "engine/options/program_digest.h"
#include "model/source/digest_of_files.h"

namespace heddle {
namespace {

std::string text_of(const Digest& digest) {
  return std::to_string(digest.high) + "-" + std::to_string(digest.low);
}

}  // namespace

std::unique_ptr<PageStore> open_page_store(const EngineOptions& options,
                                           const model::ModelFiles& files,
                                           const ModelRunner& runner) {
  if (options.kv_cache_dir.empty()) return nullptr;
  HEDDLE_CHECK(!files.file_paths().empty(), "kv_cache_dir needs a model that has files");
  PageIdentity identity;
  identity.add("program", text_of(program_digest()));
  identity.add("processor", processor_name());
  identity.add("model", text_of(model::digest_of_files(runner.exec(), files.file_paths())));
  identity.add("weights", options.weights);
  identity.add("kv_type", name(runner.kv_dtype()));
  return std::make_unique<PageStore>(PageStoreOptions{.dir = options.kv_cache_dir,
                                                      .max_bytes = options.kv_disk_memory,
                                                      .page_bytes = runner.page_bytes(),
                                                      .page_size = options.page_size},
                                     identity, options.on_warning);
}

}  // namespace heddle
