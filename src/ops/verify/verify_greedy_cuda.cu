#include "cuda/check.h"
#include "cuda/warp.h"

#include "core/kernel_log.h"
#include "core/math.h"
#include "ops/verify/verify_kernels.h"

namespace heddle::cuda::verify {
namespace {

constexpr int kThreads = 64;  // few, so that a small batch spreads over many multiprocessors
constexpr int kTrees = kThreads / 32;  // of a block

// The longest run of drafts that the target chose, and what it chose next.
//
//   block       kThreads requests
//     thread    one request: its chain, draft by draft
//
// Grid ceil(num_seqs / kThreads).
__global__ void __launch_bounds__(kThreads) chain_kernel(const __grid_constant__ GreedyParams p) {
  const int64_t seq = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (seq >= p.batch.num_seqs) return;
  constexpr int kAtOnce = 4;
  const DraftSpan span = p.batch.span(seq);
  const int64_t most =
      span.num_drafts < p.outputs.max_accepted ? span.num_drafts : p.outputs.max_accepted;
  int64_t accepted = 0;
  bool accepts = true;
  for (int64_t first = 0; first < most && accepts; first += kAtOnce) {
    int64_t drafted[kAtOnce], chosen[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {  // past the end the last one again, which is not used
      const int64_t i = first + k < most ? first + k : most - 1;
      drafted[k] = p.batch.tokens[span.begin + i];
      chosen[k] = p.target_tokens[span.target_row + i];
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      accepts = accepts && first + k < most && drafted[k] >= 0 && drafted[k] == chosen[k];
      if (!accepts) break;
      p.outputs.accept(seq, accepted, accepted, drafted[k]);
      ++accepted;
    }
  }
  p.outputs.finish(seq, accepted, p.target_tokens[span.target_row + accepted]);
}

// The longest confirmed path, of equal ones that with the lowest last node.
//
//   block       kTrees requests
//     warp      one request: its tree, 32 nodes at a time
//       lane    one node, and the path from the root to it
//
// Grid ceil(num_seqs / kTrees).
__global__ void __launch_bounds__(kThreads) tree_kernel(const __grid_constant__ GreedyParams p) {
  const int64_t seq = int64_t{blockIdx.x} * kTrees + threadIdx.x / 32;
  if (seq >= p.batch.num_seqs) return;  // whole warps leave together
  const int64_t lane = threadIdx.x % 32;
  const DraftSpan span = p.batch.span(seq);
  int64_t best = -1;
  unsigned best_depth = 0;
  for (int64_t first = 0; first < span.num_drafts; first += 32) {
    const int64_t i = first + lane;
    const int64_t of_node = i < span.num_drafts ? p.confirmed_depth(span, i) : 0;
    const unsigned depth = of_node <= p.outputs.max_accepted ? static_cast<unsigned>(of_node) : 0;
    const unsigned deepest = __reduce_max_sync(kAllLanes, depth);
    const unsigned lanes = __ballot_sync(kAllLanes, depth == deepest);
    if (deepest <= best_depth) continue;
    best_depth = deepest;
    best = first + __ffs(static_cast<int>(lanes)) - 1;
  }
  if (lane != 0) return;
  int64_t place = best_depth;
  for (int64_t i = best; i >= 0; i = p.tree.parent(span, i)) {
    p.outputs.accept(seq, --place, i, p.batch.tokens[span.begin + i]);
  }
  p.outputs.finish(seq, best_depth, p.target_tokens[span.target_row + 1 + best]);
}

// One thread per place; grid ceil(num_seqs * max_depth / kThreads).
__global__ void __launch_bounds__(kThreads) moves_kernel(const __grid_constant__ TreeMoveParams p) {
  const int64_t place = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (place < p.num_seqs * p.max_depth) p.move(place / p.max_depth, place % p.max_depth);
}

unsigned blocks_for(int64_t n, int per_block) {
  return static_cast<unsigned>(ceil_div(n, per_block));
}

}  // namespace

void verify_greedy(const GreedyParams& params, cudaStream_t stream) {
  const int64_t num_seqs = params.batch.num_seqs;
  if (num_seqs == 0) return;
  const bool is_chain = params.tree.is_chain();
  log_choice("verify_greedy", is_chain ? "chains" : "trees");
  if (is_chain) {
    chain_kernel<<<blocks_for(num_seqs, kThreads), kThreads, 0, stream>>>(params);
  } else {
    tree_kernel<<<blocks_for(num_seqs, kTrees), kThreads, 0, stream>>>(params);
  }
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

void tree_kv_moves(const TreeMoveParams& params, cudaStream_t stream) {
  const int64_t num_places = params.num_seqs * params.max_depth;
  if (num_places == 0) return;
  moves_kernel<<<blocks_for(num_places, kThreads), kThreads, 0, stream>>>(params);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda::verify
