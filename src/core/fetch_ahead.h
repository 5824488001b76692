#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace heddle::cpu {

/// Rows of memory that lie row_stride bytes apart.
struct MemoryBlock {
  const std::byte* data;
  int64_t row_bytes, num_rows, row_stride;
};

/// Asks memory for lines that will be read soon, some with each step of other work, which hides the
/// wait: asked for all at once they would stop that work.
class FetchAhead {
 public:
  /// Blocks past the most that there is room for are not asked for.
  void add(MemoryBlock block) {
    if (block.row_bytes == block.row_stride) {
      block = {block.data, block.row_bytes * block.num_rows, 1, 0};
    }
    if (size_ == kMost || block.row_bytes <= 0 || block.num_rows <= 0) return;
    lines_left_ += (block.row_bytes + kLine - 1) / kLine * block.num_rows;
    blocks_[size_++] = block;
  }
  /// Shares out what was added over so many steps.
  void start(int64_t num_steps) {
    lines_per_step_ = (lines_left_ + num_steps - 1) / std::max<int64_t>(num_steps, 1);
  }

  void step() {
    for (int64_t i = std::min(lines_per_step_, lines_left_); i > 0; --i, --lines_left_) {
      const MemoryBlock& block = blocks_[at_];
      __builtin_prefetch(block.data + row_ * block.row_stride + offset_, 0, kToL2);
      offset_ += kLine;
      if (offset_ < block.row_bytes) continue;
      offset_ = 0;
      if (++row_ < block.num_rows) continue;
      row_ = 0;
      ++at_;
    }
  }

 private:
  static constexpr size_t kMost = 64;
  static constexpr int64_t kLine = 64;
  static constexpr int kToL2 = 2;  // the first cache is full of what the other work reads
  std::array<MemoryBlock, kMost> blocks_;
  size_t size_ = 0, at_ = 0;
  int64_t row_ = 0, offset_ = 0;  // in blocks_[at_]
  int64_t lines_left_ = 0, lines_per_step_ = 0;
};

}  // namespace heddle::cpu
