#pragma once

#include "cuda/warp.h"

#include "ops/verify/verify_kernels.h"

namespace heddle::cuda::verify {

/// TreeMask::next_child: each warp searches by itself, 32 nodes at once; all lanes call it with the
/// same arguments.
[[nodiscard]] __device__ inline int64_t next_child(const TreeMask& tree, const DraftSpan& span,
                                                   int64_t node, int64_t after) {
  if (tree.is_chain()) return tree.next_child(span, node, after);
  const int64_t lane = threadIdx.x % 32;
  for (int64_t first = after + 1; first < span.num_drafts; first += 32) {
    const int64_t i = first + lane;
    const bool is_child = i < span.num_drafts && tree.parent(span, i) == node;
    const unsigned lanes = __ballot_sync(kAllLanes, is_child);
    if (lanes != 0) return first + __ffs(static_cast<int>(lanes)) - 1;
  }
  return -1;
}

}  // namespace heddle::cuda::verify
