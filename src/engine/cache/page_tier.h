#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "engine/cache/page_record.h"

namespace heddle {

/// A read that was begun, and what became of it.
enum class PageRead : uint64_t {};
struct FinishedRead {
  PageRead read{};
  bool is_good = false;  // else what was to be filled has any bytes
  bool is_from_disk = false;
};

/// Where pages of the prefix cache are besides the memory in which steps read them, so that they
/// are still there when that has others. One thread calls its functions, and only wait() waits.
class PageTier {
 public:
  virtual ~PageTier() = default;

  /// For the digests that are kept with pages: PageContent::acts.
  [[nodiscard]] virtual const PageSecret& secret() const = 0;
  /// Whether it keeps pages of requests that have a salt.
  [[nodiscard]] virtual bool takes_salted() const = 0;

  struct Found {
    StoredPage id{};
    bool is_readable = false;  // else it waits to be written
  };
  /// The page of a content, which counts as used; nothing where it is neither there nor queued.
  [[nodiscard]] virtual std::optional<Found> find(const PageContent& content) = 0;
  /// Whether it still has the page.
  [[nodiscard]] virtual bool has(StoredPage page) const = 0;
  /// Keeps a page, whose bytes stay as they are until before_reuse; a content that is there is left
  /// as it is. Nothing, which is no error, where there is no room or the parent is not there.
  virtual std::optional<StoredPage> write(const PageContent& content,
                                          std::span<const std::byte> page) = 0;
  /// The bytes of a page that was given to `write` are about to be written over. What steps write
  /// from here on waits for those who still read them.
  virtual void before_reuse(const std::byte* /*page*/) noexcept {}

  /// Reads that are worth their wait when so many were begun: those of others come after them.
  [[nodiscard]] virtual int64_t max_reads() const = 0;
  /// Begins to fill `to`, which must stay until poll() or wait() has the read. Nothing where the
  /// page is not readable (any more).
  [[nodiscard]] virtual std::optional<PageRead> begin_read(StoredPage page,
                                                           std::span<std::byte> to) = 0;
  /// A read that has finished, each once, in the order in which they were begun.
  [[nodiscard]] virtual std::optional<FinishedRead> poll() = 0;
  /// The same, and waits for one; nothing where all reads that were begun have been reported.
  [[nodiscard]] virtual std::optional<FinishedRead> wait() = 0;

  /// Forgets all pages. Reads that were begun may fail.
  virtual void clear() noexcept = 0;

 protected:
  PageTier() = default;
  PageTier(const PageTier&) = default;
  PageTier& operator=(const PageTier&) = default;
};

}  // namespace heddle
