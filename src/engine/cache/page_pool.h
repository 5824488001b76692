#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace heddle {

/// A page of the KV cache: not a token, a slot or a CUDA block, and the compiler keeps them apart.
enum class PageId : int32_t {};

class PagePool;

/// Pages that are reserved for one owner: allocated one by one as it grows, freed when this object
/// ends or is assigned to, the last one first. That allocates no memory of the host. Other owners
/// may have the same pages; pages of several owners are only read.
class ReservedPages {
 public:
  ReservedPages() = default;  // none
  ReservedPages(ReservedPages&& other) noexcept { swap(other); }
  ReservedPages& operator=(ReservedPages&& other) noexcept;
  ~ReservedPages();

  /// Reserves more until there are `count`, at most PagePool::reserve's max_pages; false, and
  /// nothing has changed, where so many are not free.
  [[nodiscard]] bool reserve_to(int64_t count) noexcept;
  /// Allocates pages until there are `count`. Throws Error, and allocates none, where that is more
  /// than were reserved.
  void grow_to(int64_t count);
  /// Frees pages, which stay reserved, until there are `count`.
  void shrink_to(int64_t count) noexcept;
  /// Allocates the next of the reserved pages: one that others have, or the keeper.
  void share(PageId page) noexcept;
  /// Frees page i of ids() and has this one, of the same contents, in its place.
  void replace(int64_t i, PageId page) noexcept;
  /// Whether nothing is reserved.
  [[nodiscard]] bool is_empty() const { return pool_ == nullptr; }
  [[nodiscard]] int64_t num_reserved() const { return num_reserved_; }
  /// Those that were allocated, in the order of their positions.
  [[nodiscard]] std::span<const PageId> ids() const { return ids_; }

 private:
  friend class PagePool;
  void swap(ReservedPages& other) noexcept;

  PagePool* pool_ = nullptr;
  int64_t num_reserved_ = 0;
  std::vector<PageId> ids_;  // room for max_pages
};

/// Which pages of the KV cache are in use, kept or free. A kept page has contents that may be
/// shared again: its keeper, the prefix cache, has it also when it has no owner. Such a page counts
/// as free, since the keeper evicts it when there is no other. Of the others the one freed last is
/// allocated first, so that the memory in use stays small. Outlives the reservations.
class PagePool {
 public:
  class Keeper {
   public:
    virtual ~Keeper() = default;
    /// The last owner of a kept page has freed it.
    virtual void add_unused(PageId page) noexcept = 0;
    /// A kept page without an owner gets one.
    virtual void remove_unused(PageId page) noexcept = 0;
    /// Gives up a kept page that has no owner; there is one.
    virtual PageId evict() noexcept = 0;
    /// A page that had contents is allocated for others.
    virtual void before_reuse(PageId page) noexcept = 0;
  };

  /// max_listed: pages of all owners together, each counted for each of its owners; at least
  /// num_pages.
  explicit PagePool(int64_t num_pages, int64_t max_listed = std::numeric_limits<int64_t>::max())
      : num_pages_(num_pages), max_listed_(max_listed) {}
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  /// By the keeper, when it begins and when it ends: nullptr. Without one no page is kept.
  void set_keeper(Keeper* keeper) noexcept { keeper_ = keeper; }
  /// Reserves pages, the first of which are `shared`: pages that others or the keeper have. Running
  /// out is an expected outcome, so it is a value. Throws std::bad_alloc, and nothing is reserved
  /// then. max_pages: room for ReservedPages::reserve_to; at least num_pages.
  [[nodiscard]] std::optional<ReservedPages> reserve(int64_t num_pages,
                                                     std::span<const PageId> shared = {},
                                                     int64_t max_pages = 0);
  /// A page that has an owner stays with the keeper from here on.
  void keep(PageId page) noexcept { state(page).is_kept = true; }
  /// The keeper no longer has the page. Where it has no owner, it is free.
  void drop(PageId page) noexcept;

  [[nodiscard]] int64_t num_pages() const { return num_pages_; }
  [[nodiscard]] int64_t max_listed() const { return max_listed_; }
  /// Pages that are not reserved, with those that are kept and have no owner.
  [[nodiscard]] int64_t num_free() const { return num_pages_ - num_in_use_ - num_promised_; }
  /// Of these: kept.
  [[nodiscard]] int64_t num_unused() const { return num_unused_; }

 private:
  friend class ReservedPages;
  struct State {
    int32_t num_owners = 0;
    bool is_kept = false;
  };

  [[nodiscard]] State& state(PageId page) { return states_[static_cast<size_t>(page)]; }
  void make_room();
  [[nodiscard]] PageId take() noexcept;
  [[nodiscard]] PageId take_used() noexcept;
  void add_owner(PageId page) noexcept;
  void remove_owner(PageId page) noexcept;

  int64_t num_pages_, max_listed_;
  int64_t num_listed_ = 0;        // reserved, each for each of its owners
  int64_t num_in_use_ = 0;        // that have an owner
  int64_t num_promised_ = 0;      // reserved, but not allocated yet
  int64_t num_unused_ = 0;        // kept, without an owner
  int64_t next_ = 0;              // pages from here on were never allocated
  std::vector<State> states_;     // [next_]; room for all that may be allocated
  std::vector<PageId> released_;  // that are free and not kept; room as of states_
  Keeper* keeper_ = nullptr;
};

}  // namespace heddle
