#pragma once

#include <cstdint>
#include <fstream>
#include <sys/resource.h>

#include "heddle/core/context.h"

namespace heddle::testing {

/// A context on the CPU with these threads; nullptr: the calling thread alone.
inline ExecContext context_with(ThreadPool* threads) {
  ExecContext ctx;
  ctx.threads = threads;
  return ctx;
}

#if defined(__SANITIZE_ADDRESS__)
/// The address sanitizer needs more address space than a limit leaves.
inline constexpr bool kCanLimitThreads = false;
#else
inline constexpr bool kCanLimitThreads = true;
#endif

/// Pages of this process' address space.
inline int64_t mapped_pages() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages;
}

/// Leaves this process address space for a few more threads: the stacks of `num_threads` and the
/// heap that they make. Holds for root, too. For the child of a death test, since there is no way
/// back.
inline void leave_room_for_threads(int num_threads) {
  rlimit stack{};
  getrlimit(RLIMIT_STACK, &stack);
  const rlim_t of_thread = stack.rlim_cur == RLIM_INFINITY ? rlim_t{8} << 20 : stack.rlim_cur;
  const rlim_t room = static_cast<rlim_t>(mapped_pages()) * 4096 +
                      static_cast<rlim_t>(num_threads) * (of_thread + 4096);
  const rlimit limit{room, room};
  setrlimit(RLIMIT_AS, &limit);
}

}  // namespace heddle::testing
