#pragma once

#include <cstdio>
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

/// Leaves this process address space for a few more threads: the stacks of `num_threads` and the
/// heap that they make. Holds for root, too. For the child of a death test, since there is no way
/// back.
inline void leave_room_for_threads(int num_threads) {
  unsigned long pages = 0;
  if (std::FILE* statm = std::fopen("/proc/self/statm", "r")) {
    (void)!std::fscanf(statm, "%lu", &pages);
    std::fclose(statm);
  }
  rlimit stack{};
  getrlimit(RLIMIT_STACK, &stack);
  const rlim_t of_thread = stack.rlim_cur == RLIM_INFINITY ? rlim_t{8} << 20 : stack.rlim_cur;
  const rlim_t room = pages * 4096 + static_cast<rlim_t>(num_threads) * (of_thread + 4096);
  const rlimit limit{room, room};
  setrlimit(RLIMIT_AS, &limit);
}

}  // namespace heddle::testing
