#pragma once

#include <cstdint>
#include <span>

#include "engine/cache/page_pool.h"

namespace heddle {

/// Where the pages of requests that were parked are meanwhile.
class PageShelf {
 public:
  enum class Saved : uint64_t { kNone = 0 };
  virtual ~PageShelf() = default;

  /// Begins to copy pages, of which steps that were launched may still write some; kNone: there is
  /// no room. The pages may be freed at once.
  [[nodiscard]] virtual Saved save(std::span<const PageId> pages) noexcept = 0;
  /// Begins to copy them back, into as many pages that were allocated for them. False: it cannot.
  [[nodiscard]] virtual bool begin_restore(Saved saved, std::span<const PageId> pages) noexcept = 0;
  /// Whether that is done. Also true where the device has failed, as the next step will find.
  [[nodiscard]] virtual bool is_restored(Saved saved) noexcept = 0;
  virtual void wait_until_restored(Saved saved) noexcept = 0;
  /// The pages that they are copied to may be freed before that is done; it may begin again.
  virtual void break_off(Saved saved) noexcept = 0;
  /// They are not needed any more.
  virtual void drop(Saved saved) noexcept = 0;

 protected:
  PageShelf() = default;
  PageShelf(const PageShelf&) = default;
  PageShelf& operator=(const PageShelf&) = default;
};

}  // namespace heddle
