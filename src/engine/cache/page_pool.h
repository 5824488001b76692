#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace heddle {

/// A page of the KV cache: not a token, a slot or a CUDA block, and the compiler keeps them apart.
enum class PageId : int32_t {};

class PagePool;

/// Pages that are reserved for one owner: allocated one by one as it grows, freed when this object
/// ends or is assigned to. That allocates no memory of the host. The first of them may be shared
/// with other owners; shared pages are only read.
class ReservedPages {
 public:
  ReservedPages() = default;  // none
  ReservedPages(ReservedPages&& other) noexcept { swap(other); }
  ReservedPages& operator=(ReservedPages&& other) noexcept;
  ~ReservedPages();

  /// Allocates pages until there are `count`. Throws Error, and allocates none, where that is more
  /// than were reserved.
  void grow_to(int64_t count);
  /// Frees all after the first `count` pages.
  void shrink_to(int64_t count) noexcept;
  /// Whether nothing is reserved.
  [[nodiscard]] bool is_empty() const { return pool_ == nullptr; }
  /// Those that were allocated, in the order of their positions.
  [[nodiscard]] std::span<const PageId> ids() const { return ids_; }

 private:
  friend class PagePool;
  void swap(ReservedPages& other) noexcept;

  PagePool* pool_ = nullptr;
  int64_t num_reserved_ = 0;
  std::vector<PageId> ids_;  // room for num_reserved_; shared ones first
};

/// Which pages of the KV cache are free. The page freed last is allocated first, so that the memory
/// in use stays small. Outlives the reservations.
class PagePool {
 public:
  explicit PagePool(int64_t num_pages) : num_pages_(num_pages), num_free_(num_pages) {}
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  /// Reserves pages. Running out is an expected outcome, so it is a value. Throws std::bad_alloc,
  /// and nothing is reserved then.
  [[nodiscard]] std::optional<ReservedPages> reserve(int64_t num_pages);
  /// Likewise, but the first `num_shared` of them are those that `other` has allocated. A shared
  /// page is free when its last owner has freed it.
  [[nodiscard]] std::optional<ReservedPages> reserve_shared(const ReservedPages& other,
                                                            int64_t num_shared, int64_t num_pages);
  [[nodiscard]] int64_t num_pages() const { return num_pages_; }
  /// Pages that are not reserved.
  [[nodiscard]] int64_t num_free() const { return num_free_; }

 private:
  friend class ReservedPages;
  PageId take() noexcept;
  void give_back(std::span<const PageId> ids, int64_t num_reserved) noexcept;

  int64_t num_pages_, num_free_;
  int64_t next_ = 0;              // pages from here on were never allocated
  std::vector<int32_t> others_;   // [page]: owners besides the first one; past the end: none
  std::vector<PageId> released_;  // room for all pages that are reserved or were allocated
};

}  // namespace heddle
