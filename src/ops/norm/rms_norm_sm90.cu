#include "cuda/early_launch.h"
#include "cuda/memory_cuda.h"

#include "ops/norm/rms_norm_lane_cuda.h"

namespace heddle::cuda {
namespace {

__device__ uint32_t rank_in_cluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ void wait_for_cluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
/// *slot = v in the shared memory of another block of the cluster.
__device__ void store_in_block(float* slot, uint32_t rank, float v) {
  asm volatile(
      "{\n"
      "  .reg .b32 there;\n"
      "  mapa.shared::cluster.u32 there, %0, %1;\n"
      "  st.shared::cluster.f32 [there], %2;\n"
      "}" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(slot))),
      "r"(rank), "f"(v)
      : "memory");
}

/// op over the blocks of the cluster in their order, of a value that is the same in all threads of a block. `slots` are used once.
template <class Op>
__device__ float reduce_cluster(float v, int num_chunks, float (&slots)[kMaxChunks], Op op) {
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < num_chunks) {
    store_in_block(slots + rank_in_cluster(), static_cast<uint32_t>(thread), v);
  }
  arrive_at_cluster();
  wait_for_cluster();
  v = slots[0];
  for (int c = 1; c < num_chunks; ++c) v = op(v, slots[c]);
  return v;
}

// A row that no block's registers hold: those of a cluster do, so that it is read once. Grid num_rows * num_chunks, clusters of
// num_chunks, block of a chunk's lanes.
template <class T>
__global__ void __launch_bounds__(kMaxLanes, sizeof(T) == 2 ? 2 : 1)
    rms_norm_cluster_kernel(const __grid_constant__ RmsNormParams p) {
  __shared__ Partials partials[2];
  __shared__ float slots[2][kMaxChunks];
  arrive_at_cluster();
  const auto num_chunks = static_cast<uint32_t>(p.num_chunks), rank = rank_in_cluster();
  const int lanes = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const uint32_t row = blockIdx.x / num_chunks;
  const int begin = static_cast<int>(rank * p.chunk_width), width = static_cast<int>(p.width);
  const int end = min(begin + static_cast<int>(p.chunk_width), width);
  const auto lane = lane_of_row<T, int>(p, row, begin, end, thread, lanes);
  const bool has_residual = p.residual.data != nullptr;
  Piece<T> x[kMany], residual[kMany];

  wait_for_predecessor();
  load_pieces<true>(lane.input, lane, 0, x);
  if (has_residual) load_pieces<true>(static_cast<const T*>(lane.residual), lane, 0, residual);
  LaneWeights<true, kMany, T, int> weights(p, lane, 0);
  trigger_dependents();
  float inverse_scale = p.scale.fixed != nullptr ? 1.0f / *p.scale.fixed : 1.0f;
  if (has_residual) add_to_residual<true>(lane, 0, residual, x);

  float sums[4] = {};
  add_squares(x, sums);
  const float sum = reduce_row<true>(total(sums), lanes, partials[0], Plus());
  weights.fetch();
  wait_for_cluster();  // all its blocks have started: their shared memory is there
  const float rstd = rstd_of(p, reduce_cluster(sum, p.num_chunks, slots[0], Plus()));
  if (!p.is_output_fp8) return write<true>(lane, 0, x, weights, rstd);
  Normalised<kMany, T> normalised(x, weights, rstd);
  if (p.scale.per_row != nullptr) {
    float largest = reduce_row<true>(normalised.largest(0.0f), lanes, partials[1], Larger());
    largest = reduce_cluster(largest, p.num_chunks, slots[1], Larger());
    inverse_scale = inverse_of_largest(p, row, largest, thread == 0 && rank == 0);
  }
  normalised.template write<true>(lane, 0, inverse_scale);
}

template <class T>
bool run(const RmsNormParams& p, const RmsNormLaunch& launch, unsigned num_chunks) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(p.num_rows * num_chunks);
  config.blockDim = dim3(static_cast<unsigned>(cut_of(p.width).lanes));
  config.stream = launch.stream;
  return launch_early_in_clusters<rms_norm_cluster_kernel<T>, kMaxChunks>(launch.device, config,
                                                                          num_chunks, p);
}

}  // namespace

bool rms_norm_in_clusters(RmsNormParams params, const RmsNormLaunch& how) {
  constexpr int64_t kMaxBlocks = (int64_t{1} << 31) - 1;
  const RowCut cut = cut_of(params.width);
  params.num_chunks = cut.num_chunks;
  if (!how.is_sm90 || !how.is_aligned || params.width > kClusterWidth ||
      int64_t{params.num_rows} * cut.num_chunks > kMaxBlocks) {
    return false;
  }
  const auto num_chunks = static_cast<unsigned>(cut.num_chunks);
  switch (how.dtype) {
    case DType::kFloat16: return run<__half>(params, how, num_chunks);
    case DType::kBFloat16: return run<__nv_bfloat16>(params, how, num_chunks);
    default: return run<float>(params, how, num_chunks);
  }
}

}  // namespace heddle::cuda
