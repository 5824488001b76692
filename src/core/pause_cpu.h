#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace heddle {

/// Tells the processor that the loop around it waits.
inline void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace heddle
