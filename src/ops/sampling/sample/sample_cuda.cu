#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>

#include "cuda/begin_early_cuda.h"
#include "cuda/early_launch.h"
#include "cuda/shared_memory.h"

#include "core/math.h"
#include "ops/sampling/sample/device_cluster_cuda.h"
#include "ops/sampling/sample/row_sampler_cuda.h"
#include "ops/sampling/sample/sample_kernels.h"
#include "ops/sampling/sample/sample_select.h"

// A cluster of blocks takes a row, and one row after the other: logits of the next ones come into
// shared memory meanwhile (row_ring_cuda.h).
//
//   batch   as many rows as the cluster has blocks; all blocks collect what each row needs
//   block   an equal part of a row; leads one row of the batch, and finishes it while the other
//           blocks do so with theirs
//   thread  of its part some times four neighbours
//
// Then all blocks search in those rows for which the few largest tokens were not enough. Grid
// num_clusters * num_blocks. How many blocks there are changes no bit: sums are of whole numbers,
// and places are compared.

namespace heddle::cuda::sampling {

// Kernels have names that tools/check_shared_memory.py can read: no namespace without one.

/// Dynamic shared memory of a block, of which one fits on a multiprocessor: more of it on chips of
/// 9.0 and 10.0 than on the others.
constexpr int kSlotBytes = kRowThreads * static_cast<int>(sizeof(float4));
constexpr int kStateBytes = static_cast<int>(offsetof(BlockState, slots));
constexpr int kNumSlots = 4, kLargeNumSlots = 12, kBlocksPerSm = 1;
static_assert(sizeof(BlockState) <= kStateBytes + kNumSlots * kSlotBytes);
static_assert(kSlotsAtOnce == kSlotBatch && kLargeNumSlots <= kMaxSlots);

struct RowShape {
  RowLayout layout;
  RingShape ring;
};

/// sample, as drive_rows needs it.
struct SampleJob {
  const SampleParams& p;
  RowDraw* draws;  // of the batch, in shared memory

  const __device__ LogitRows& rows() const { return p.rows; }
  __device__ void bring_near(int64_t row) const {
    if (p.temperature.data != nullptr) bring_options_near(p, row);
  }
  __device__ void prepare(int i, int64_t row) const { draws[i] = draw_of(p, row); }
  __device__ RowNeeds needs(int i) const {
    return needs_of(draws[i], p.rows.vocab_size, p.logprobs != nullptr);
  }
  __device__ bool finish(DeviceCluster& cluster, const RowLayout& layout, int i, int64_t row,
                         const RowBounds& bounds) const {
    // One warp has all that a greedy row takes; the others would hold it up.
    if (needs(i).lowest && threadIdx.x >= kWarpSize) return true;
    if (needs(i).is_greedy()) {
      const LeadingToken best = cluster.leading();
      write(row, best.logit() > -kInfinity ? best.id() : 0, 0.0f);
      return true;
    }
    if (!(bounds.largest > -kInfinity)) {
      write(row, 0, -kInfinity);
      return true;
    }
    RowSampler<DeviceCluster> sampler(cluster, layout, p.rows.vocab_size, bounds, draws[i]);
    const uint64_t total = p.logprobs != nullptr ? one_units(cluster, i) : 0;
    if (!sampler.finish()) return false;
    write_token(cluster, total, row, bounds, sampler.token());
    return true;
  }
  __device__ void search(DeviceCluster& cluster, const RowLayout& layout, int i, int64_t row,
                         const RowBounds& bounds) const {
    RowSampler<DeviceCluster> sampler(cluster, layout, p.rows.vocab_size, bounds, draws[i]);
    const uint64_t total = cluster.is_leader() ? one_units(cluster, i) : 0;
    sampler.search();
    if (cluster.is_leader()) write_token(cluster, total, row, bounds, sampler.token());
  }

 private:
  /// The leader's: the sum of the units at temperature 1, where it was collected.
  __device__ uint64_t one_units(const DeviceCluster& cluster, int i) const {
    return cluster.total(needs(i).one);
  }
  __device__ void write_token(const DeviceCluster& cluster, uint64_t one_units, int64_t row,
                              const RowBounds& bounds, uint32_t token) const {
    if (threadIdx.x != 0) return;
    float logprob = 0.0f;
    if (p.logprobs != nullptr) {
      logprob =
          heddle::sampling::logprob_of(cluster.logit(token), bounds.largest,
                                       heddle::sampling::log_sum_of(one_units, p.rows.vocab_size));
    }
    write(row, token, logprob);
  }
  __device__ void write(int64_t row, uint32_t token, float logprob) const {
    if (threadIdx.x != 0) return;
    if (p.is_int64) {
      static_cast<int64_t*>(p.token_ids)[row * p.token_stride] = token;
    } else {
      static_cast<int32_t*>(p.token_ids)[row * p.token_stride] = static_cast<int32_t>(token);
    }
    if (p.logprobs != nullptr) p.logprobs[row * p.logprob_stride] = logprob;
  }
};

/// token_logprobs.
struct TokenLogprobsJob {
  const TokenLogprobsParams& p;

  const __device__ LogitRows& rows() const { return p.rows; }
  __device__ void bring_near(int64_t) const {}
  __device__ void prepare(int, int64_t) const {}
  __device__ RowNeeds needs(int) const {
    return {.list = p.k > 0, .num_groups = groups_of(p.k), .one = true};
  }
  __device__ bool finish(DeviceCluster& cluster, const RowLayout&, int, int64_t row,
                         const RowBounds& bounds) const {
    const double log_sum = log_sum_of(cluster, bounds);
    if (threadIdx.x == 0) {
      const int64_t token = token_of(row);
      p.logprobs[row * p.logprob_stride] =
          token < 0 ? std::numeric_limits<float>::quiet_NaN()
                    : logprob_of(cluster.logit(static_cast<uint32_t>(token)), bounds, log_sum);
    }
    if (p.k == 0) return true;
    if (!(bounds.largest > -kInfinity)) return false;
    fetch_counts(cluster);
    const int n = take_lists(cluster);
    if (n < p.k || n > kMaxList) return false;
    cluster.sort(n);
    const Places places(p.rows.vocab_size);
    if (int(threadIdx.x) < p.k) {
      write_top(places, row, threadIdx.x, cluster.leader().list[threadIdx.x], bounds, log_sum);
    }
    return true;
  }
  __device__ void search(DeviceCluster& cluster, const RowLayout&, int, int64_t row,
                         const RowBounds& bounds) const {
    const double log_sum = cluster.is_leader() ? log_sum_of(cluster, bounds) : 0.0;
    const RowSearch<DeviceCluster> search(cluster, p.rows.vocab_size, bounds.largest, 1.0f);
    list_top(cluster, search, p.k, [&](int64_t i, uint64_t place) {
      write_top(search.places(), row, i, place, bounds, log_sum);
    });
  }

 private:
  /// The given token of a row; -1 where it is out of range.
  __device__ int64_t token_of(int64_t row) const {
    const int64_t token = p.is_int64
                              ? static_cast<const int64_t*>(p.token_ids)[row * p.token_stride]
                              : static_cast<const int32_t*>(p.token_ids)[row * p.token_stride];
    return token >= 0 && token < p.rows.vocab_size ? token : -1;
  }
  __device__ double log_sum_of(const DeviceCluster& cluster, const RowBounds& bounds) const {
    if (!(bounds.largest > -kInfinity)) return 0.0;
    return heddle::sampling::log_sum_of(cluster.total(true), p.rows.vocab_size);
  }
  static __device__ float logprob_of(float logit, const RowBounds& bounds, double log_sum) {
    return bounds.largest > -kInfinity
               ? heddle::sampling::logprob_of(logit, bounds.largest, log_sum)
               : -kInfinity;
  }
  __device__ void write_top(const Places& places, int64_t row, int64_t i, uint64_t place,
                            const RowBounds& bounds, double log_sum) const {
    p.top_ids[row * p.top_ids_stride + i] = static_cast<int32_t>(places.id_of(place));
    p.top_logprobs[row * p.top_logprobs_stride + i] =
        logprob_of(places.logit_of(place), bounds, log_sum);
  }
};

/// Rows of a batch: i is row first + i * step.
struct RowBatch {
  int64_t first, step;

  __device__ int64_t row(int i) const { return first + i * step; }
};

// What follows the collecting is a function of its own, so that it does not take its registers.

template <class Job>
__noinline__ __device__ void prepare_row(Job job, BlockState& own, int64_t row, int i) {
  job.prepare(i, row);
  own.list_sizes[i] = 0;
}
/// Whether row i of the batch, which this block leads, is done.
template <class Job>
__noinline__ __device__ bool finish_row(Job job, const RowShape& shape, BlockState& own,
                                        RowBatch batch, int i) {
  DeviceCluster cluster(own, nullptr, job.rows(), shape.layout);
  cluster.start_search(batch.row(i), i);
  return job.finish(cluster, shape.layout, i, batch.row(i), own.bounds[i]);
}
template <class Job>
__noinline__ __device__ void search_rows(Job job, const RowShape& shape, BlockState& own,
                                         RowBatch batch, int num_rows) {
  DeviceCluster cluster(own, nullptr, job.rows(), shape.layout);
  for (int i = 0; i < num_rows; ++i) {
    if (!own.needs_search[i]) continue;
    cluster.start_search(batch.row(i), i);
    job.search(cluster, shape.layout, i, batch.row(i), own.bounds[i]);
  }
}

/// All rows of a cluster. A Job is what is done with them.
template <class Job>
__device__ void drive_rows(const Job& job, const RowShape& shape, BlockState& own) {
  const LogitRows& rows = job.rows();
  const auto t = static_cast<int>(threadIdx.x);
  const auto num_blocks = static_cast<int>(shape.layout.num_blocks);
  const uint32_t step = gridDim.x / uint32_t(num_blocks);
  uint32_t first = blockIdx.x / uint32_t(num_blocks);  // row of the batch
#if __CUDA_ARCH__ >= 900
  if (num_blocks > 1) {  // there are no clusters before
    if (t < 2) {
      own.maxima_come[t].init(1);
      show_barriers_to_cluster();
    }
    leave_cluster();  // nothing else is written that others read
  }
#endif
  const auto size_of_batch = [&] {
    const int64_t left = (rows.num_rows - 1 - first) / step + 1;
    return left < num_blocks ? static_cast<int>(left) : num_blocks;
  };
  RowRing ring(rows, shape.layout, shape.ring, own, step);
  // Since the step's weights have taken their place in the cache.
  if (t < size_of_batch()) job.bring_near(first + int64_t{t} * step);
  wait_for_predecessor();
  // The options first: the logits that are copied from now on would hold them up.
  const auto prepare = [&] {
    if (t < size_of_batch()) prepare_row(job, own, first + int64_t{t} * step, t);
    ring.start_batch(first, size_of_batch());
  };
  prepare();
  DeviceCluster cluster(own, &ring, rows, shape.layout);
  if (num_blocks > 1) wait_for_cluster();  // all blocks have started
  for (;;) {
    const int num_in_batch = size_of_batch();
    __syncthreads();
    bool needs_others = false;  // whether what leaders do takes other blocks
    for (int i = 0; i < num_in_batch; ++i) {
      cluster.start_row(first + int64_t{i} * step);
      const RowNeeds needs = job.needs(i);
      needs_others |= needs.list;
      if (needs.is_greedy()) {
        find_leading(cluster, i);
        continue;
      }
      RowBounds bounds = find_bounds(cluster, i, needs);
      if (bounds.largest > -kInfinity) {
        bounds = RowCollector<DeviceCluster>(cluster, rows.vocab_size, i, bounds).collect(needs);
      } else {
        cluster.end_row();
      }
      if (t == 0) own.bounds[i] = bounds;
    }
    cluster.meet();
    const RowBatch batch{first, step};
    first += uint32_t(num_blocks) * step;
    const bool is_last = first >= rows.num_rows;
    if (cluster.rank() < num_in_batch) {
      const bool is_done = finish_row(job, shape, own, batch, cluster.rank());
      if (is_last && !needs_others) return;
      if (t < num_blocks) cluster.of(t).needs_search[cluster.rank()] = !is_done;
    }
    if (is_last && !needs_others) return;
    cluster.meet();
    bool any = false;
    for (int i = 0; i < num_in_batch; ++i) any |= own.needs_search[i];
    if (any) search_rows(job, shape, own, batch, num_in_batch);
    if (is_last) return;
#if __CUDA_ARCH__ >= 900
    show_to_copy_engine();  // that the slots were used for other things
#endif
    __syncthreads();
    prepare();
  }
}

__device__ BlockState& block_state(float4* memory) {
  return *reinterpret_cast<BlockState*>(memory);
}

template <class Params>
struct RowLaunch {
  Params params;
  RowShape shape;
};

__global__ void __launch_bounds__(kRowThreads, kBlocksPerSm)
    sample_kernel(const __grid_constant__ RowLaunch<SampleParams> launch) {
  extern __shared__ float4 memory[];
  __shared__ RowDraw draws[kMaxBlocks];
  fetch_parameters(launch);
  trigger_dependents();
  drive_rows(SampleJob{launch.params, draws}, launch.shape, block_state(memory));
}

__global__ void __launch_bounds__(kRowThreads, kBlocksPerSm)
    token_logprobs_kernel(const __grid_constant__ RowLaunch<TokenLogprobsParams> launch) {
  extern __shared__ float4 memory[];
  fetch_parameters(launch);
  trigger_dependents();
  drive_rows(TokenLogprobsJob{launch.params}, launch.shape, block_state(memory));
}

/// How many clusters of so many blocks run at once; asked once for a device.
template <auto kKernel>
int num_active_clusters(int device, const cudaLaunchConfig_t& of, int num_blocks) {
  static std::array<std::array<std::atomic<int>, std::bit_width(unsigned{kMaxBlocks})>, 64> known{};
  std::atomic<int>* const answer =
      device < 64 ? &known[size_t(device)][std::bit_width(unsigned(num_blocks)) - 1] : nullptr;
  int num = answer != nullptr ? answer->load() : 0;
  if (num > 0) return num;
  auto attributes = cluster_attributes(static_cast<unsigned>(num_blocks));
  cudaLaunchConfig_t config = of;
  config.gridDim = dim3(static_cast<unsigned>(num_blocks));
  config.attrs = attributes.data();
  config.numAttrs = static_cast<unsigned>(attributes.size());
  HEDDLE_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&num, kKernel, &config));
  num = std::max(num, 1);
  if (answer != nullptr) answer->store(num);
  return num;
}

template <auto kKernel, class Params>
void launch_rows(const ExecContext& ctx, const Params& params) {
  const int64_t num_rows = params.rows.num_rows;
  if (num_rows == 0) return;
  const int generation = ctx.info.compute_capability / 10;
  const bool is_large = generation == 9 || generation == 10;
  const bool has_clusters = can_start_early<kKernel>(ctx.device.index);
  const int num_slots = is_large ? kLargeNumSlots : kNumSlots,
            bytes = kStateBytes + num_slots * kSlotBytes;
  allow_shared_memory<kKernel, kStateBytes + kNumSlots * kSlotBytes,
                      kStateBytes + kLargeNumSlots * kSlotBytes>(ctx.device.index, bytes);
  cudaLaunchConfig_t config{};
  config.blockDim = dim3(kRowThreads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = ctx.stream;
  const auto at_once = [&](int num_blocks) {
    return has_clusters ? num_active_clusters<kKernel>(ctx.device.index, config, num_blocks)
                        : ctx.info.num_sms;
  };
  const int max_blocks = select_blocks(num_rows, has_clusters ? kMaxBlocks : 1, at_once);
  const RowChoice choice =
      select_row(params.rows.vocab_size, 4 * kRowThreads, max_blocks, num_slots);
  const int64_t num_clusters = std::min<int64_t>(num_rows, at_once(choice.num_blocks));
  config.gridDim = dim3(static_cast<unsigned>(num_clusters * choice.num_blocks));
  // No more slots than the rows of a cluster fill.
  const int64_t rows_of_cluster = ceil_div(num_rows, num_clusters);
  const auto slots_in_use = static_cast<int>(
      std::clamp<int64_t>(rows_of_cluster * choice.slots_per_row, kNumSlots, num_slots));
  config.dynamicSmemBytes = static_cast<size_t>(kStateBytes + slots_in_use * kSlotBytes);
  const RowShape shape{
      RowLayout(static_cast<uint32_t>(choice.num_blocks), static_cast<uint32_t>(choice.num_chunks)),
      {slots_in_use, choice.slots_per_row}};
  launch_clusters_early<kKernel>(ctx.device.index, config, static_cast<unsigned>(choice.num_blocks),
                                 RowLaunch<Params>{params, shape});
}

void sample(const ExecContext& ctx, const SampleParams& params) {
  launch_rows<sample_kernel>(ctx, params);
}

void token_logprobs(const ExecContext& ctx, const TokenLogprobsParams& params) {
  launch_rows<token_logprobs_kernel>(ctx, params);
}

}  // namespace heddle::cuda::sampling
