#include "engine/face/stored_pages.h"

#include <algorithm>
#include <string>
#include <utility>

#include "heddle/core/error.h"

#include "core/device_name.h"
#include "engine/face/engine_options.h"
#include "engine/options/available_memory.h"
#include "engine/options/program_digest.h"
#include "model/source/digest_of_files.h"

namespace heddle {
namespace {

std::string text_of(const Digest& digest) {
  return std::to_string(digest.high) + "-" + std::to_string(digest.low);
}

/// What the selection of kernels reads of a device.
std::string name_of_processor(const ExecContext& ctx) {
  if (ctx.device.type == DeviceType::kCpu) return processor_name();
  return device_name(ctx.device) + ", compute capability " +
         std::to_string(ctx.info.compute_capability) + ", " + std::to_string(ctx.info.num_sms) +
         " multiprocessors";
}

/// The store of EngineOptions::kv_cache_dir; nullptr where the options have none.
std::unique_ptr<PageStore> open_page_store(const EngineOptions& options,
                                           const model::ModelFiles& files,
                                           const ModelRunner& runner) {
  if (options.kv_cache_dir.empty()) return nullptr;
  HEDDLE_CHECK(!files.file_paths().empty(), "kv_cache_dir needs a model that has files");
  PageIdentity identity;
  identity.add("program", text_of(program_digest()));
  identity.add("processor", name_of_processor(runner.exec()));
  identity.add("model", text_of(model::digest_of_files(runner.exec(), files.file_paths())));
  identity.add("weights", options.weights);
  identity.add("activations", options.activations);
  identity.add("kv_type", kv_type_name(runner.kv_dtype()));
  return std::make_unique<PageStore>(PageStoreOptions{.dir = options.kv_cache_dir,
                                                      .max_bytes = options.kv_disk_memory,
                                                      .page_bytes = runner.page_bytes(),
                                                      .page_size = options.page_size,
                                                      .takes_salted = options.kv_disk_salted},
                                     identity, options.on_warning);
}

/// Bytes of EngineOptions::kv_host_memory; by default no more than some times the KV cache, since
/// pinning takes its time.
int64_t host_bytes(const EngineOptions& options, const ModelRunner& runner) {
  constexpr int64_t kShare = 4, kMost = 2;
  const int64_t page_bytes = runner.page_bytes(), available = available_memory();
  if (options.kv_host_memory < 0) {
    return std::min(available / kShare, kMost * runner.pages().num_pages() * page_bytes);
  }
  HEDDLE_CHECK(options.kv_host_memory == 0 || options.kv_host_memory >= page_bytes,
               "kv_host_memory is ", options.kv_host_memory,
               " bytes, expected 0 or at least a page of ", options.page_size,
               " tokens, which takes ", page_bytes);
  return std::min(options.kv_host_memory, available);
}

std::unique_ptr<HostTier> open_host_tier(const EngineOptions& options, const ModelRunner& runner,
                                         std::unique_ptr<PageStore> below) {
  const int64_t num_pages = host_bytes(options, runner) / runner.page_bytes();
  PinnedPages pages(runner.exec(), num_pages, runner.page_bytes());
  const int64_t num_wanted = std::max(options.kv_host_memory / runner.page_bytes(), num_pages);
  if (pages.num_pages() < num_wanted && options.on_warning) {
    options.on_warning("kv_host_memory: the system has room for " +
                       std::to_string(pages.num_pages() * runner.page_bytes()) + " of " +
                       std::to_string(num_wanted * runner.page_bytes()) +
                       " bytes that copies of a GPU reach; the engine goes on with these" +
                       (pages.num_pages() == 0 && below != nullptr
                            ? ", and without kv_cache_dir, whose pages come through them"
                            : ""));
  }
  if (pages.num_pages() == 0) return nullptr;
  return std::make_unique<HostTier>(
      std::move(pages), std::make_unique<DeviceCopier>(runner.exec()),
      [&runner](PageId page) { return runner.bytes_of(page); }, std::move(below));
}

}  // namespace

PageTier* StoredPages::tier() const {
  if (host != nullptr) return host.get();
  return disk.get();
}

PageShelf* StoredPages::shelf() const {
  if (host != nullptr) return host.get();
  return memory.get();
}

int64_t StoredPages::num_disk_pages() const {
  const PageStore* const store = host == nullptr ? disk.get() : host->below();
  return store == nullptr ? 0 : store->stats().num_pages;
}

int64_t StoredPages::num_host_pages() const {
  if (host == nullptr) return 0;
  const HostTierStats stats = host->stats();
  return stats.num_pages + stats.num_parked;
}

StoredPages open_stored_pages(const EngineOptions& options, const model::ModelFiles& files,
                              const ModelRunner& runner, bool has_host) {
  const bool shares = options.prefix_cache && !keys_depend_on_length(files.config());
  const bool parks = options.admit == "now";
  StoredPages pages;
  std::unique_ptr<PageStore> disk;
  if (shares) disk = open_page_store(options, files, runner);
  if (has_host && (shares || parks)) {
    pages.host = open_host_tier(options, runner, std::move(disk));
  } else {
    pages.disk = std::move(disk);
  }
  if (!has_host && parks) {
    pages.memory =
        std::make_unique<MemoryShelf>([&runner](PageId page) { return runner.bytes_of(page); });
  }
  return pages;
}

}  // namespace heddle
