#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace heddle {

/// A page of the KV cache: not a token, a slot or a CUDA block, and the compiler keeps them apart.
enum class PageId : int32_t {};

/// Which pages of the KV cache are free. Knows counts and ids, no requests. The page given back
/// last is given out first, so that the memory in use stays small.
class PagePool {
 public:
  explicit PagePool(int64_t num_pages) : num_pages_(num_pages) {}

  /// Running out is an expected outcome, so it is a value.
  [[nodiscard]] std::optional<PageId> acquire();
  void release(PageId page);
  [[nodiscard]] int64_t num_free() const {
    return num_pages_ - next_ + static_cast<int64_t>(released_.size());
  }

 private:
  int64_t num_pages_;
  int64_t next_ = 0;  // pages from here on were never given out
  std::vector<PageId> released_;
};

}  // namespace heddle
