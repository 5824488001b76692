#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace heddle {

/// A page of the KV cache: not a token, a slot or a CUDA block, and the compiler keeps them apart.
enum class PageId : int32_t {};

class PagePool;

/// The pages of one row: set aside when it is admitted, taken one by one as it grows, given back
/// when this object ends or is assigned to. Taking and giving back ask for no memory. The first of
/// them may be shared with other rows, which all only read them then.
class RowPages {
 public:
  RowPages() = default;  // of a row that waits: none
  RowPages(RowPages&& other) noexcept { swap(other); }
  RowPages& operator=(RowPages&& other) noexcept;
  ~RowPages();

  /// Takes pages until there are `count`. Throws Error, and takes none, where that is more than
  /// was set aside.
  void grow_to(int64_t count);
  /// Gives back what is behind the first `count` pages.
  void shrink_to(int64_t count) noexcept;
  /// Whether nothing is set aside.
  [[nodiscard]] bool is_empty() const { return pool_ == nullptr; }
  /// Those that were taken, in the order of their positions.
  [[nodiscard]] std::span<const PageId> ids() const { return ids_; }

 private:
  friend class PagePool;
  void swap(RowPages& other) noexcept;

  PagePool* pool_ = nullptr;
  int64_t num_reserved_ = 0;
  std::vector<PageId> ids_;  // room for num_reserved_; shared ones first
};

/// Which pages of the KV cache are free. Knows counts and ids, no requests. The page given back
/// last is given out first, so that the memory in use stays small. Outlives the rows' pages.
class PagePool {
 public:
  explicit PagePool(int64_t num_pages) : num_pages_(num_pages), num_free_(num_pages) {}
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  /// Sets pages aside for one row. Running out is an expected outcome, so it is a value. Throws
  /// std::bad_alloc, and nothing is set aside then.
  [[nodiscard]] std::optional<RowPages> reserve(int64_t num_pages);
  /// The same for a row that begins with the first `num_shared` pages of another, which has taken
  /// them; the rest is set aside. A shared page is free when its last row has given it back.
  [[nodiscard]] std::optional<RowPages> reserve_behind(const RowPages& other, int64_t num_shared,
                                                       int64_t num_pages);
  [[nodiscard]] int64_t num_pages() const { return num_pages_; }
  /// Pages that are set aside for no row.
  [[nodiscard]] int64_t num_free() const { return num_free_; }

 private:
  friend class RowPages;
  PageId take() noexcept;
  void give_back(std::span<const PageId> ids, int64_t num_reserved) noexcept;

  int64_t num_pages_, num_free_;
  int64_t next_ = 0;              // pages from here on were never given out
  std::vector<int32_t> others_;   // [page]: rows that hold it beside one; past the end: none
  std::vector<PageId> released_;  // room for all pages that are set aside or were given out
};

}  // namespace heddle
