#pragma once

#include <utility>

namespace heddle {

/// Names the operation whose kernels this thread launches while it lives, for the sentence of an
/// error of CUDA. One in another counts alone.
class ScopedOperation {
 public:
  explicit ScopedOperation(const char* name) : outer_(std::exchange(current_, name)) {}
  ScopedOperation(const ScopedOperation&) = delete;
  ScopedOperation& operator=(const ScopedOperation&) = delete;
  ~ScopedOperation() { current_ = outer_; }

  /// Null where the thread is in none.
  [[nodiscard]] static const char* current() { return current_; }

 private:
  static inline constinit thread_local const char* current_ = nullptr;
  const char* outer_;
};

}  // namespace heddle
