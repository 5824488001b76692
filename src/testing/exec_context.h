#pragma once

#include "heddle/core/context.h"

namespace heddle::testing {

/// A context on the CPU with these threads; nullptr: the calling thread alone.
inline ExecContext context_with(ThreadPool* threads) {
  ExecContext ctx;
  ctx.threads = threads;
  return ctx;
}

}  // namespace heddle::testing
