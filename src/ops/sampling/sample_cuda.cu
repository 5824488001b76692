#include "cuda/begin_early_cuda.h"
#include "cuda/early_launch.h"
#include "cuda/shared_memory.h"

#include "ops/sampling/device_cluster_cuda.h"
#include "ops/sampling/row_sampler_cuda.h"
#include "ops/sampling/sample_kernels.h"
#include "ops/sampling/sample_select.h"

// One row is a cluster of blocks, or a block:
//
//   block    every num_blocks-th chunk of 2048 logits, read once into shared memory
//   thread   of each chunk four neighbours
//   block 0  sorts the few tokens that may be chosen, and decides
//
// Grid num_rows * num_blocks, clusters of num_blocks. How many blocks there are changes no bit:
// sums are of whole numbers, and places are compared.

namespace heddle::cuda::sampling {

// Kernels have names that tools/check_shared_memory.py can read: no namespace without one.

/// Shared memory for chunks, beside a kernel's own.
constexpr int kCacheBytes = 80 * 1024, kLargeCacheBytes = 208 * 1024;

template <class Params>
struct RowLaunch {
  Params params;
  int num_blocks, cached_chunks;
};

__device__ int64_t row_of_block(int num_blocks) { return blockIdx.x / unsigned(num_blocks); }

__global__ void __launch_bounds__(kRowThreads, 3)
    sample_kernel(const __grid_constant__ RowLaunch<SampleParams> launch) {
  extern __shared__ float4 cache[];
  __shared__ BlockState own;
  const SampleParams& p = launch.params;
  begin_early(launch);
  const int64_t r = row_of_block(launch.num_blocks);
  const float* const logits = p.rows.logits + r * p.rows.row_stride;
  DeviceCluster cluster(own, logits, p.rows.vocab_size, cache, launch.cached_chunks);
  cluster.load();
  const RowDraw draw = draw_of(p, r);
  const RowBounds bounds = find_bounds(cluster);
  uint32_t token = 0;
  float logprob = -kInfinity;
  if (bounds.largest > -kInfinity) {
    RowSampler<DeviceCluster> sampler(cluster, p.rows.vocab_size, bounds, draw);
    sampler.run(p.logprobs != nullptr);
    token = sampler.token();
    if (cluster.is_leader() && threadIdx.x == 0 && p.logprobs != nullptr) {
      logprob = heddle::sampling::logprob_of(
          logits[token], bounds.largest,
          heddle::sampling::log_sum_of(sampler.one_units(), p.rows.vocab_size));
    }
  } else {
    cluster.meet();  // others read this block's maxima
  }
  if (!cluster.is_leader() || threadIdx.x != 0) return;
  if (p.is_int64) {
    static_cast<int64_t*>(p.token_ids)[r * p.token_stride] = token;
  } else {
    static_cast<int32_t*>(p.token_ids)[r * p.token_stride] = static_cast<int32_t>(token);
  }
  if (p.logprobs != nullptr) p.logprobs[r * p.logprob_stride] = logprob;
}

/// The given token of a row; -1 where it is out of range.
__device__ int64_t token_of(const TokenLogprobsParams& p, int64_t row) {
  const int64_t token = p.is_int64 ? static_cast<const int64_t*>(p.token_ids)[row * p.token_stride]
                                   : static_cast<const int32_t*>(p.token_ids)[row * p.token_stride];
  return token >= 0 && token < p.rows.vocab_size ? token : -1;
}

__global__ void __launch_bounds__(kRowThreads, 3)
    token_logprobs_kernel(const __grid_constant__ RowLaunch<TokenLogprobsParams> launch) {
  extern __shared__ float4 cache[];
  __shared__ BlockState own;
  const TokenLogprobsParams& p = launch.params;
  begin_early(launch);
  const int64_t r = row_of_block(launch.num_blocks);
  const float* const logits = p.rows.logits + r * p.rows.row_stride;
  DeviceCluster cluster(own, logits, p.rows.vocab_size, cache, launch.cached_chunks);
  cluster.load();
  const RowBounds bounds = find_bounds(cluster);
  const float scale = heddle::sampling::scale_of(1.0f);
  const UnitScale units{bounds.largest, scale, heddle::sampling::units_magic(p.rows.vocab_size)};
  cluster.sum<1>([&](BlockState&, int rank, int thread) {
    TwoSums sums;
    cluster.tokens(rank, thread, [&](float x, uint32_t) { sums.a[0] += units.units_of(x); });
    return sums;
  });
  double log_sum = 0.0;
  if (cluster.is_leader()) {
    uint64_t all = 0;
    for (int rank = 0; rank < cluster.num_blocks(); ++rank) all += cluster.of(rank).units[0];
    log_sum = heddle::sampling::log_sum_of(all, p.rows.vocab_size);
  }
  const auto logprob = [&](float logit) {
    return bounds.largest > -kInfinity
               ? heddle::sampling::logprob_of(logit, bounds.largest, log_sum)
               : -kInfinity;
  };
  if (cluster.is_leader() && threadIdx.x == 0) {
    const int64_t token = token_of(p, r);
    p.logprobs[r * p.logprob_stride] =
        token < 0 ? std::numeric_limits<float>::quiet_NaN() : logprob(logits[token]);
  }
  const RowSearch<DeviceCluster> search(cluster, p.rows.vocab_size, bounds.largest, scale);
  list_top(cluster, search, bounds, p.k, [&](int64_t i, uint64_t place) {
    const uint32_t id = search.places().id_of(place);
    p.top_ids[r * p.top_ids_stride + i] = static_cast<int32_t>(id);
    p.top_logprobs[r * p.top_logprobs_stride + i] = logprob(logits[id]);
  });
  cluster.meet();  // block 0 reads the others' sums
}

template <auto kKernel, class Params>
void launch_rows(const ExecContext& ctx, const Params& params) {
  const int64_t num_rows = params.rows.num_rows;
  if (num_rows == 0) return;
  const int generation = ctx.info.compute_capability / 10;
  const bool is_large = generation == 9 || generation == 10;
  const int max_blocks = can_start_early<kKernel>(ctx.device.index) ? kMaxBlocks : 1;
  const RowChoice choice = select_row(params.rows.vocab_size, kChunk, max_blocks,
                                      is_large ? kLargeCacheBytes : kCacheBytes);
  const size_t bytes = size_t(choice.cached_chunks) * kChunk * sizeof(float);
  allow_shared_memory<kKernel, kCacheBytes, kLargeCacheBytes>(ctx.device.index,
                                                              static_cast<int>(bytes));
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(num_rows * choice.num_blocks));
  config.blockDim = dim3(kRowThreads);
  config.dynamicSmemBytes = bytes;
  config.stream = ctx.stream;
  launch_clusters_early<kKernel>(
      ctx.device.index, config, static_cast<unsigned>(choice.num_blocks),
      RowLaunch<Params>{params, choice.num_blocks, choice.cached_chunks});
}

void sample(const ExecContext& ctx, const SampleParams& params) {
  launch_rows<sample_kernel>(ctx, params);
}

void token_logprobs(const ExecContext& ctx, const TokenLogprobsParams& params) {
  launch_rows<token_logprobs_kernel>(ctx, params);
}

}  // namespace heddle::cuda::sampling
