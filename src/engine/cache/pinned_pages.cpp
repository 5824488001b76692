#include "engine/cache/pinned_pages.h"

#include <algorithm>

#include "heddle/core/error.h"

namespace heddle {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 30;
/// From here on memory is mapped: a piece shares no page of the system with what others pin.
constexpr int64_t kLeastBytes = int64_t{64} << 10;

/// Writes to all of the memory by all threads, since the system clears what is first written.
void touch(const ExecContext& ctx, std::span<std::byte> memory) {
  constexpr int64_t kSystemPage = 4096, kGrain = int64_t{4} << 20;
  parallel_for(ctx, std::ssize(memory), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kSystemPage) memory[static_cast<size_t>(i)] = {};
  });
}

}  // namespace

PinnedPages::PinnedPages(const ExecContext& ctx, int64_t num_pages, int64_t page_bytes)
    : page_bytes_(page_bytes), pages_in_piece_(std::max<int64_t>(kPieceBytes / page_bytes, 1)) {
  while (num_pages_ < num_pages) {
    const int64_t count = std::min(pages_in_piece_, num_pages - num_pages_);
    const auto num_bytes = static_cast<size_t>(std::max(count * page_bytes, kLeastBytes));
    try {
      DeviceBytes memory = allocate_zeroed({}, num_bytes, HostPages::kHuge);
      if (ctx.device.type != DeviceType::kCpu) touch(ctx, {memory.get(), num_bytes});
      PinnedHost pin = pin_host(ctx.device, {memory.get(), num_bytes});
      pieces_.push_back({std::move(memory), std::move(pin)});
    } catch (const Error&) {
      return;
    }
    num_pages_ += count;
  }
}

std::span<std::byte> PinnedPages::operator[](int64_t page) const {
  const int64_t offset = page % pages_in_piece_ * page_bytes_;
  return {pieces_[static_cast<size_t>(page / pages_in_piece_)].memory.get() + offset,
          static_cast<size_t>(page_bytes_)};
}

}  // namespace heddle
