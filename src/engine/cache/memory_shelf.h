#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/cache/page_shelf.h"

namespace heddle {

/// The shelf of a KV cache in host memory: copies in memory that is allocated for each request, and
/// made at once.
class MemoryShelf final : public PageShelf {
 public:
  /// Where a page lies.
  using BytesOf = std::function<std::span<std::byte>(PageId)>;
  explicit MemoryShelf(BytesOf bytes_of) : bytes_of_(std::move(bytes_of)) {}

  Saved save(std::span<const PageId> pages) noexcept override;
  bool begin_restore(Saved saved, std::span<const PageId> pages) noexcept override;
  bool is_restored(Saved /*saved*/) noexcept override { return true; }
  void wait_until_restored(Saved /*saved*/) noexcept override {}
  void break_off(Saved /*saved*/) noexcept override {}
  void drop(Saved saved) noexcept override { copies_.erase(saved); }

 private:
  BytesOf bytes_of_;
  std::unordered_map<Saved, std::vector<std::byte>> copies_;  // of pages, one after another
  uint64_t next_ = 1;
};

}  // namespace heddle
