#pragma once

#include <memory>

#include "heddle/engine/engine.h"

#include "engine/cache/page_store.h"
#include "engine/runner/model_runner.h"
#include "model/source/model_files.h"

namespace heddle {

/// The store of EngineOptions::kv_cache_dir; nullptr where the options have none. Its pages are
/// those of engines of the same program, on the same processor, with the same files of the model
/// and the same options that change bits. Throws Error where the folder is refused.
[[nodiscard]] std::unique_ptr<PageStore> open_page_store(const EngineOptions& options,
                                                         const model::ModelFiles& files,
                                                         const ModelRunner& runner);

}  // namespace heddle
