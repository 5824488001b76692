#include "ops/speculation/lanes/draft_lanes_cuda.h"
#include "ops/speculation/lanes/kv_lanes_cuda.h"
#include "ops/speculation/lanes/lanes_cuda.h"

namespace heddle::cuda::speculation {
namespace {

/// SpeculativeStepParams, in the order in which it is read.
struct GroupStep {
  GroupCount num_decode, num_prefill;
  GroupDrafts layout;
  ConstContiguousIndices input, output;  // [num_tokens]
  uint32_t num_requests = 0, num_next = 0;
  uint32_t lanes = 0;  // of a block, for its requests
  bool write_prefill_rows = false;
  // By the blocks of the caches.
  GroupKv kv;
  ContiguousIndexRows positions, slots;       // [num_requests, num_next]
  ContiguousIndices kv_lens, last_page_lens;  // [num_requests]
  // By the blocks of the tokens.
  ConstContiguousIndices required;  // [num_tokens]
  ContiguousIndices last_ones, sampled, last_seq,
      accepted_counts;                  // [num_last_ones], [num_requests]
  ContiguousIndexRows accepted_tokens;  // [num_requests, max_drafts]
  std::byte* mask = nullptr;            // [num_tokens]
  uint32_t num_last_ones = 0;
};

/// The requests of a launch.
struct GroupCounts {
  uint32_t decode, active;

  template <IndexLayout kLayout>
  static __device__ GroupCounts read(const GroupStep& p) {
    const uint32_t decode = p.num_decode.read<kLayout>(), prefill = p.num_prefill.read<kLayout>();
    const uint32_t left = p.num_requests - decode;
    return {decode, decode + (prefill < left ? prefill : left)};
  }
};

/// A lane's draft and the model's token at the place before it, on their way.
template <IndexLayout kLayout>
struct GroupDraft {
  LoadedIndex drafted, wanted;

  __device__ GroupDraft(const GroupStep& p, const GroupRange& range, uint32_t lane)
      : drafted(load_if<kLayout>(lane > 0 && lane < range.length, p.input, range.begin + lane)),
        wanted(
            load_if<kLayout>(lane > 0 && lane < range.length, p.output, range.begin + lane - 1)) {}
  /// Tokens of the request up to the first that is not accepted; 0 without tokens. Called by all
  /// lanes of a warp.
  [[nodiscard]] __device__ uint32_t count_accepted(const GroupStep& p, const LaneGroup& group,
                                                   const GroupRange& range) const {
    const int64_t token = drafted.value();
    const bool rejects = p.layout.rejects_placeholders && token == kNoToken;
    const bool agrees =
        group.lane < range.length && (group.lane == 0 || (token == wanted.value() && !rejects));
    return __ffs(static_cast<int>(~group.bits(__ballot_sync(kAllLanes, agrees)))) - 1;
  }
};

/// The positions, slots and lengths of the next step, or those of a padding row. id: of the last
/// block in use.
template <IndexLayout kLayout, class Int>
__device__ void store_next_step(const GroupStep& p, const LaneGroup& group, bool is_active,
                                const BasicKvRewind<Int>& rewind, int64_t id) {
  const auto size = static_cast<Int>(p.kv.block_size), left = rewind.left;
  const auto max_blocks = static_cast<Int>(p.kv.max_blocks);
  const int64_t before = left > 0 ? int64_t{left - 1} * size : 0;  // of the last block
  const Int place = left > 0 ? rewind.offset + 1 : 0;
  const Int at = place + static_cast<Int>(group.lane);  // past the last block: in one yet to be had
  const bool has_slot = at < size && id >= 0 && left > 0 && is_active &&
                        left + Int{rewind.crossed > 0} <= max_blocks;  // else the rewind cleared it
  const bool stores = group.lane < p.num_next && group.row < p.num_requests;
  store_if<kLayout>(stores && p.positions.is_given(), p.positions.row_given(group.row), group.lane,
                    is_active ? before + at : -1);
  store_if<kLayout>(stores && p.slots.is_given(), p.slots.row_given(group.row), group.lane,
                    has_slot ? id * size + at : -1);
  const Int end = place + static_cast<Int>(p.num_next);
  Int in_last = end <= size ? end : end - size;
  if (in_last > size) in_last = end - general_quotient<Int>(end - 1, size) * size;
  store_if<kLayout>(stores && group.lane == 0, p.kv_lens, group.row, is_active ? before + end : 0);
  store_if<kLayout>(stores && group.lane == 0, p.last_page_lens, group.row,
                    is_active ? in_last : 0);
}

/// The same where the state of a cache makes no sense.
template <IndexLayout kLayout>
__device__ __noinline__ void next_step_large(const GroupStep& p, LaneGroup group, KvRow row,
                                             uint32_t rejected) {
  const KvRewind rewind = plan_large(p.kv, row, rejected);
  store_next_step<kLayout>(p, group, true, rewind,
                           load_last_used_id<kLayout>(p.kv, group.row, rewind));
}

/// rewind_kv_cache of each request by the first p.lanes threads of a block, its next step by as
/// many others. They read the cache before the barrier, these change it after; none of the ids
/// that are cleared is one that a slot of the next step is made of.
template <IndexLayout kLayout, ListOrder kOrder>
__device__ void step_caches(const GroupStep& p) {
  __shared__ uint32_t warp_totals[kMaxGroupThreads / 32];  // [warps]: ids that each releases
  ListSums<kOrder> sums(p.kv.list_sums);
  const GroupCounts counts = GroupCounts::read<kLayout>(p);
  const LaneGroup group(p.kv.group_shift, p.lanes, sums.block());
  const uint32_t row = group.row;
  const bool is_next = threadIdx.x >= p.lanes;
  GroupRow<kLayout> kv_row(p.kv, row, row < p.num_requests);
  const bool is_active = row < counts.active;
  const GroupRange range =
      is_active ? range_of<kLayout>(p.layout, row, counts.decode) : GroupRange{};
  const GroupDraft<kLayout> draft(p, range, group.lane);
  kv_row.load_ids(p.kv, row, is_active, is_next);

  const uint32_t run = draft.count_accepted(p, group, range);
  const uint32_t rejected = range.drafts - (run > 0 ? run - 1 : 0);
  const bool is_large = is_active && !kv_row.is_small();
  BasicKvRewind<int32_t> rewind{};
  if (is_active && !is_large) rewind = kv_row.plan(p.kv, rejected);
  const KvRow kv = kv_row.row();
  auto num_released = static_cast<uint32_t>(rewind.num_released);
  if (is_large) num_released = count_released(p.kv, kv, rejected);
  GroupPlaces places;
  if (!is_next) places.count(p.kv, group, num_released, warp_totals);
  __syncthreads();
  if (is_next) {
    if (is_large) return next_step_large<kLayout>(p, group, kv, rejected);
    const int64_t id = kv_row.last_used_id(p.kv, row, rewind);
    return store_next_step<kLayout>(p, group, is_active, rewind, id);
  }
  places.publish(p.kv, sums, p.lanes, warp_totals);
  finish_rewind<kLayout>(p, group, kv_row, kv, is_active, is_large, rejected, rewind, num_released,
                         places, sums);
}

/// Clears the mask where a request has fewer tokens than its starts give it, and after the last
/// request.
template <IndexLayout kLayout>
__device__ void clear_gaps(const GroupStep& p, const LaneGroup& group, const GroupRange& range,
                           const GroupCounts& counts) {
  const int64_t num_tokens = p.layout.num_tokens;
  if (p.layout.indptr.is_given() && range.length > 0) {
    const int64_t end = range.next < num_tokens ? range.next : num_tokens;
#pragma unroll 1
    for (int64_t t = int64_t{range.begin} + range.length + group.lane; t < end; t += group.size) {
      p.mask[t] = std::byte{0};
    }
  }
  const int64_t tail =
      counts.active == 0 ? 0 : range_of<kLayout>(p.layout, counts.active, counts.decode).next - 1;
#pragma unroll 1
  for (int64_t t = (tail < 0 ? 0 : tail) + blockIdx.x * p.lanes + threadIdx.x; t < num_tokens;
       t += gridDim.x * p.lanes) {
    p.mask[t] = std::byte{0};
  }
}

/// verify_speculative_tokens and prepare_next_forward_pass of each request.
template <IndexLayout kLayout>
__device__ void step_tokens(const GroupStep& p, const LaneGroup& group) {
  const uint32_t row = group.row, lane = group.lane;
  const GroupCounts counts = GroupCounts::read<kLayout>(p);
  const GroupRange range =
      row < counts.active ? range_of<kLayout>(p.layout, row, counts.decode) : GroupRange{};
  const GroupDraft<kLayout> draft(p, range, lane);
  const uint32_t t = range.begin + lane;
  const bool is_token = lane < range.length;  // the output of any of them may be what is sampled
  const LoadedIndex output = load_if<kLayout>(is_token, p.output, t);
  const LoadedIndex required = load_if<kLayout>(is_token && p.required.is_given(), p.required, t);

  const uint32_t run = draft.count_accepted(p, group, range);
  const bool is_known = run > 0, takes = is_known && row < counts.decode;
  const bool is_request = row < p.num_requests, is_last = lane == (is_known ? run - 1 : 0);
  if (p.mask != nullptr && is_token) p.mask[t] = std::byte{lane < run};
  store_if<kLayout>(is_last && (is_request || row < p.num_last_ones), p.last_ones, row,
                    is_known ? int64_t{t} : -1);
  store_if<kLayout>(is_last && is_request, p.sampled, row, is_known ? output.value() : kNoToken);
  store_if<kLayout>(is_last && is_request && p.required.is_given(), p.last_seq, row,
                    is_known ? required.value() : -1);
  const bool stores = is_request && (takes || !is_known || p.write_prefill_rows);
  store_if<kLayout>(stores && lane == 0, p.accepted_counts, row, takes ? run - 1 : 0);
  store_if<kLayout>(
      stores && lane > 0 && lane <= p.layout.max_drafts && p.accepted_tokens.is_given(),
      p.accepted_tokens.row_given(row), lane - 1,
      takes && lane < run ? draft.drafted.value() : kNoToken);
  if (p.mask != nullptr) clear_gaps<kLayout>(p, group, range, counts);
}

// All of a step. A group of lanes for each request, a lane for each of its tokens; everything is
// loaded before anything is used, so that a request waits for memory twice: for its count
// of blocks, then for their ids. Such a kernel takes as long as its longest chain of instructions,
// so half of the blocks, those with blockIdx.y = 1, do what needs the tokens alone. Grid (blocks,
// 2), block p.lanes threads as select_speculation_kernel has them, twice as many where the next
// step is requested.
template <IndexLayout kLayout, ListOrder kOrder>
__global__ void __launch_bounds__(2 * kMaxGroupThreads)
    step_lanes_kernel(const __grid_constant__ GroupStep p) {
  begin_early(p);
  if (blockIdx.y == 0) {
    step_caches<kLayout, kOrder>(p);
  } else if (threadIdx.x < p.lanes) {
    step_tokens<kLayout>(p, LaneGroup(p.kv.group_shift, p.lanes, blockIdx.x));
  }
}

}  // namespace

SpeculationChoice speculative_step_by_lane_groups(const ExecContext& ctx,
                                                  const SpeculativeStepParams& params) {
  const DraftLayout& layout = params.verify.layout;
  const Releases& releases = params.releases;
  const NextStep& next = params.next_step;
  const MutableMaskArray& mask = params.verify.accepted_tokens_mask;
  const int64_t num_rows = params.num_rows();
  uint64_t* const list_sums = list_sums_of(ctx.exchange);
  IndexPacker pack;
  GroupStep p{.num_decode = group_count(params.verify.num_decode, pack),
              .num_prefill = group_count(params.verify.num_prefill, pack),
              .layout = make_group_drafts(layout, pack),
              .input = pack(params.verify.input_tokens),
              .output = pack(params.verify.output_tokens),
              .num_requests = static_cast<uint32_t>(params.num_requests),
              .num_next = static_cast<uint32_t>(next.num_tokens),
              .write_prefill_rows = params.write_prefill_rows,
              .kv = make_group_kv(params.kv, releases, num_rows, pack),
              .positions = pack(next.positions),
              .slots = pack(next.slots),
              .kv_lens = pack(next.kv_lens),
              .last_page_lens = pack(next.last_page_lens),
              .required = pack(params.required_logit_indices),
              .last_ones = pack(params.verify.last_one_indices),
              .sampled = pack(params.next.sampled_tokens),
              .last_seq = pack(params.next.last_accepted_seq),
              .accepted_counts = pack(params.next.accepted_counts),
              .accepted_tokens = pack(params.next.accepted_tokens),
              .mask = mask.data(),
              .num_last_ones = static_cast<uint32_t>(params.num_last_ones)};
  const bool has_next = next.is_given();
  const SpeculationChoice choice = select_speculation_kernel(
      {.num_rows = num_rows,
       .tokens_per_row = std::max(1 + layout.max_drafts(), next.num_tokens),
       .is_large = is_large(params.kv, releases, num_rows) || is_large(layout, num_rows),
       .has_gaps =
           pack.layout() == IndexLayout::kStrided || releases.mask.has_gaps() || mask.has_gaps(),
       .is_listed = releases.listed,
       .has_list_sums = list_sums != nullptr,
       .has_clusters = can_start_early<step_lanes_kernel<IndexLayout::kI32, ListOrder::kLaunched>>(
           ctx.device.index),
       .has_next_step = has_next});
  if (choice.kernel != SpeculationKernel::kLaneGroups) return choice;
  p.lanes = choice.threads;
  set_choice(choice, list_sums, p.kv);
  const unsigned threads = has_next ? 2 * choice.threads : choice.threads;
  dispatch_layout(pack.layout(), [&]<IndexLayout kLayout>() {
    launch_lanes<step_lanes_kernel<kLayout, ListOrder::kLaunched>,
                 step_lanes_kernel<kLayout, ListOrder::kStarted>>(
        ctx, choice, dim3(choice.blocks, 2), threads, p);
  });
  return choice;
}

}  // namespace heddle::cuda::speculation
