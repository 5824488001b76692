#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "heddle/core/context.h"

#include "core/device_bytes.h"

namespace heddle {

/// Host memory for pages of a KV cache, which a GPU copies by itself: pinned, in pieces, so that
/// there are fewer where there is no room for all.
class PinnedPages {
 public:
  PinnedPages() = default;  // none
  /// At most num_pages, of ctx.device; as many as the system pins. Takes its time: the system
  /// clears them.
  PinnedPages(const ExecContext& ctx, int64_t num_pages, int64_t page_bytes);

  [[nodiscard]] int64_t num_pages() const { return num_pages_; }
  [[nodiscard]] int64_t page_bytes() const { return page_bytes_; }
  [[nodiscard]] std::span<std::byte> operator[](int64_t page) const;

 private:
  struct Piece {
    DeviceBytes memory;
    PinnedHost pin;
  };

  int64_t page_bytes_ = 0, pages_in_piece_ = 1, num_pages_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace heddle
