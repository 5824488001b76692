#include "cuda/check.h"
#include "cuda/philox_cuda.h"

#include "cpu/philox.h"
#include "ops/verify/draft_tree_cuda.h"
#include "ops/verify/residual_cuda.h"

namespace heddle::cuda::verify {
namespace {

static_assert(uniform_draw(-7, int64_t{1} << 40, 2, 5) ==
              cpu::uniform_draw(-7, int64_t{1} << 40, cpu::Draw::kTarget, 5));
constexpr uint32_t kAccept = static_cast<uint32_t>(cpu::Draw::kAccept);
constexpr uint32_t kTarget = static_cast<uint32_t>(cpu::Draw::kTarget);

/// One request on its way down the tree (or along the chain). All threads of the block take every
/// step of it.
class DeviceWalk {
 public:
  __device__ DeviceWalk(const StochasticParams& p, SharedResidual& shared)
      : p_(p),
        shared_(shared),
        seq_(blockIdx.x),
        span_(p.batch.span(seq_)),
        seed_(p.seed[seq_]),
        step_(p.step[seq_]) {}

  __device__ void run() {
    int64_t node = -1;  // the root
    for (;;) {
      const float* row = p_.target_probs.row(span_.target_row + 1 + node);
      DeviceResidual residual(shared_, row, p_.vocab_size, p_.draft_probs.data == nullptr);
      double total = 0.0;  // of the residual, where drafts were rejected
      const int64_t child =
          depth_ < p_.outputs.max_accepted ? accepted_child(residual, node, total) : -1;
      if (child < 0) {
        const int64_t token = draw_token(residual, total);
        if (threadIdx.x == 0) p_.outputs.finish(seq_, depth_, token);
        return;
      }
      if (threadIdx.x == 0) p_.outputs.accept(seq_, depth_, child, token_of(child));
      ++depth_;
      node = child;
    }
  }

 private:
  [[nodiscard]] __device__ int64_t token_of(int64_t node) const {
    return p_.batch.tokens[span_.begin + node];
  }
  [[nodiscard]] __device__ double uniform(uint32_t purpose, int rank) const {
    const auto step = static_cast<int64_t>(static_cast<uint64_t>(step_) + uint64_t(depth_));
    return uniform_draw(seed_, step, purpose, static_cast<uint32_t>(rank));
  }

  /// Tries the children of `node` in turn; the residual is then what is left without the rejected
  /// ones, of mass `total`. -1: none is accepted.
  [[nodiscard]] __device__ int64_t accepted_child(DeviceResidual& residual, int64_t node,
                                                  double& total) const {
    double mass = 1.0;
    int64_t child = next_child(p_.tree, span_, node, node);
    for (int rank = 0; child >= 0 && rank < kMaxTried; ++rank) {
      const int64_t token = token_of(child);
      if (token >= 0 && token < p_.vocab_size) {
        const float* q =
            p_.draft_probs.data == nullptr ? nullptr : p_.draft_probs.row(span_.begin + child);
        const double expected = mass * (q == nullptr ? 1.0 : device_probability(q[token]));
        if (uniform(kAccept, rank) * expected < residual.weight_of(token)) return child;
        mass = total = residual.reject(token, q, mass);
        if (!(mass > 0.0)) return -1;  // nothing is left that a sibling could be accepted from
      }
      child = next_child(p_.tree, span_, node, child);
    }
    return -1;
  }

  /// From the residual; from the target's row where nothing is left of it; 0 where that has no mass
  /// either.
  [[nodiscard]] __device__ int64_t draw_token(DeviceResidual& residual, double total) const {
    if (residual.num_rejected() == 0 || !(total > 0.0)) {
      residual.forget_rejected();
      total = residual.sum();
    }
    return total > 0.0 ? residual.draw(uniform(kTarget, 0)) : 0;
  }

  const StochasticParams& p_;
  SharedResidual& shared_;
  const int64_t seq_;
  const DraftSpan span_;
  const int64_t seed_, step_;
  int64_t depth_ = 0;  // accepted drafts
};

// Speculative sampling (heddle/ops/verify.h).
//
//   block           one request, down the tree: all threads take every decision alike
//     16 lanes      a chunk of the vocabulary, of 32 that are summed at once
//       lane        every 16th weight of the chunk
//     thread 0      the sum of the chunks' sums, and the running sums of a draw, since their order
//                   is part of the contract
//
// Grid num_seqs, block kWalkThreads.
__global__ void __launch_bounds__(kWalkThreads)
    walk_kernel(const __grid_constant__ StochasticParams p) {
  __shared__ SharedResidual shared;
  DeviceWalk(p, shared).run();
}

}  // namespace

void verify_stochastic(const StochasticParams& params, cudaStream_t stream) {
  if (params.batch.num_seqs == 0) return;
  walk_kernel<<<static_cast<unsigned>(params.batch.num_seqs), kWalkThreads, 0, stream>>>(params);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda::verify
