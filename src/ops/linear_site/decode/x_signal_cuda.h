#pragma once

#include "cuda/memory_cuda.h"

#include "ops/linear_site/decode/exchange.h"

namespace heddle::cuda::linear_site {

// How products learn that x is ready before A x is, and multiply meanwhile:
//
//   what makes x   ------------.
//   A x               waits     +- signal - multiplies -----------.
//   products          load W    +-- load x, multiply -------------+- add B (A x)
//
// Packed products add nothing; they wait for A x before they end, so that what follows them
// need not.
//
// Launches of A x are counted. One counts itself before it lets the products after it start, and
// these read the count before they let the next A x start: so the count is that of the launch
// before. Products start when all blocks of that launch have, which wait for no later kernel: so
// nothing hangs. Nothing is cleared between launches, and counts may pass 2^32.

/// A x, one thread. Before it lets the products start it waits for what this returns.
__device__ inline uint32_t begin_launch(XSignal& signal) {
  return add_to_counter(&signal.num_begun, 1);
}
/// A x, one thread, when all that was written before it can be seen.
__device__ inline void tell_ready(XSignal& signal) { advance_counter(&signal.num_ready); }

/// The products, one thread of each block: lets the next kernel start, and waits until x is ready.
__device__ inline void wait_for_x(const XSignal& signal) {
  const uint32_t begun = read_counter(&signal.num_begun);  // completes before what follows it
  trigger_dependents();
  while (static_cast<int32_t>(read_counter(&signal.num_ready) - begun) < 0) {
  }
}

}  // namespace heddle::cuda::linear_site
