#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "heddle/core/error.h"

namespace heddle {

/// Scratch memory of one context: hands out aligned pieces of a buffer that the caller owns, from
/// low to high.
/// Ops allocate what they need within a Scope and free it when they return. Every op that needs
/// scratch has a pure `*_workspace_bytes` function.
class Workspace {
 public:
  static constexpr size_t kAlignment = 64;

  explicit Workspace(std::span<std::byte> buffer) : buffer_(buffer) {}

  /// n elements of T, uninitialised, 64-byte aligned. Throws kOutOfMemory when the buffer is too
  /// small.
  template <class T>
  [[nodiscard]] std::span<T> take(size_t n) {
    const size_t begin = next_begin();
    if (!has_room<T>(n)) {
      throw_error(ErrorCode::kOutOfMemory, "workspace holds ", buffer_.size(), " bytes, needed ", n,
                  " elements of ", sizeof(T), " bytes from byte ", begin, " on");
    }
    used_ = begin + n * sizeof(T);
    return {reinterpret_cast<T*>(buffer_.data() + begin), n};
  }

  /// Whether `take` has n elements of T left: for ops that can do without.
  template <class T>
  [[nodiscard]] bool has_room(size_t n) const {
    const size_t begin = next_begin();
    return begin <= buffer_.size() && n <= (buffer_.size() - begin) / sizeof(T);
  }

  /// Bytes that a `take` of n elements of T may use up, padding included: for `*_workspace_bytes`.
  /// Throws kInvalidArgument where they are above 2^63 - 1.
  template <class T>
  [[nodiscard]] static constexpr size_t bytes_for(size_t n) {
    constexpr size_t kMax = (size_t{PTRDIFF_MAX} - kAlignment) / sizeof(T);
    HEDDLE_CHECK(n <= kMax, "a workspace of ", n, " elements of ", sizeof(T),
                 " bytes, expected at most ", kMax);
    return n * sizeof(T) + kAlignment;
  }

  /// Gives back what was taken since its construction.
  class Scope {
   public:
    explicit Scope(Workspace& workspace) : workspace_(workspace), used_(workspace.used_) {}
    ~Scope() { workspace_.used_ = used_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Workspace& workspace_;
    size_t used_;
  };

 private:
  [[nodiscard]] size_t next_begin() const {
    const size_t misaligned = reinterpret_cast<uintptr_t>(buffer_.data() + used_) % kAlignment;
    return used_ + (misaligned == 0 ? 0 : kAlignment - misaligned);
  }

  std::span<std::byte> buffer_;
  size_t used_ = 0;
};

}  // namespace heddle
