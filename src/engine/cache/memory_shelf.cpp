#include "engine/cache/memory_shelf.h"

#include <algorithm>
#include <new>

namespace heddle {

PageShelf::Saved MemoryShelf::save(std::span<const PageId> pages) noexcept {
  const auto saved = Saved{next_};
  try {
    std::vector<std::byte> copy;
    copy.reserve(pages.size() * bytes_of_(pages.front()).size());
    for (const PageId page : pages) {
      const std::span<const std::byte> bytes = bytes_of_(page);
      copy.insert(copy.end(), bytes.begin(), bytes.end());
    }
    copies_.emplace(saved, std::move(copy));
  } catch (const std::bad_alloc&) {
    return Saved::kNone;
  }
  ++next_;
  return saved;
}

bool MemoryShelf::begin_restore(Saved saved, std::span<const PageId> pages) noexcept {
  std::span<const std::byte> left = copies_.at(saved);
  for (const PageId page : pages) {
    const std::span<std::byte> to = bytes_of_(page);
    std::ranges::copy(left.first(to.size()), to.begin());
    left = left.subspan(to.size());
  }
  return true;
}

}  // namespace heddle
