#pragma once

#include <cstddef>
#include <cstdint>

#include "heddle/core/error.h"

namespace heddle::grammar {

/// What work on grammars may take.
struct WorkLimit {
  double seconds;     // of processor time of the thread
  int64_t num_bytes;  // that are allocated and not freed
};

/// Thrown by the work that passes its limit.
class LimitPassed : public Error {
 public:
  enum class Kind : uint8_t { kTime, kMemory };
  LimitPassed(Kind kind, const WorkLimit& limit);
  [[nodiscard]] Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

/// While it exists, work of the grammar library in this thread has a limit. The library allocates
/// by two functions of heddle's (cmake/heddle_xgrammar.cmake), which look at the limit: all that it
/// computes at length allocates now and then. None within another one.
class LimitedWork {
 public:
  explicit LimitedWork(const WorkLimit& limit);
  ~LimitedWork();
  LimitedWork(const LimitedWork&) = delete;
  LimitedWork& operator=(const LimitedWork&) = delete;

  /// Of processor time so far.
  [[nodiscard]] double seconds() const;

 private:
  friend void* allocate(size_t size);
  friend void deallocate(void* place) noexcept;
  /// Throws LimitPassed where that many bytes more, or the time so far, pass the limit.
  void check(size_t num_more);

  WorkLimit limit_;
  double end_;  // of the thread's clock
  int64_t num_bytes_ = 0;
  uint32_t num_calls_ = 0;
};

/// What the grammar library calls in place of operator new and delete.
[[nodiscard]] void* allocate(size_t size);
void deallocate(void* place) noexcept;

}  // namespace heddle::grammar
