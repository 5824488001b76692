#pragma once

#include <memory>

#include "heddle/engine/engine.h"

#include "engine/cache/host_tier.h"
#include "engine/cache/memory_shelf.h"
#include "engine/cache/page_store.h"
#include "engine/runner/model_runner.h"
#include "model/source/model_files.h"

namespace heddle {

/// Where pages are besides the KV cache: on the CPU on disk, and in memory those of some parked
/// requests; on a GPU in host memory, which has the disk below it.
struct StoredPages {
  std::unique_ptr<PageStore> disk{};      // of the CPU
  std::unique_ptr<MemoryShelf> memory{};  // of the CPU
  std::unique_ptr<HostTier> host{};

  /// Of the prefix cache; nullptr: there is none.
  [[nodiscard]] PageTier* tier() const;
  /// Of parked requests; nullptr: there is none.
  [[nodiscard]] PageShelf* shelf() const;
  [[nodiscard]] int64_t num_disk_pages() const;
  [[nodiscard]] int64_t num_host_pages() const;
};

/// What the options ask for. The pages on disk are those of engines of the same program, on the
/// same processor, with the same files of the model and the same options that change bits.
/// has_host: whether it is a GPU's engine, or has host memory as one. Throws Error where the folder
/// is refused, or the host memory holds no page.
[[nodiscard]] StoredPages open_stored_pages(const EngineOptions& options,
                                            const model::ModelFiles& files,
                                            const ModelRunner& runner, bool has_host);

}  // namespace heddle
