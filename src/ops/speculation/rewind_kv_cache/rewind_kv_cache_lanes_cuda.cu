#include "ops/speculation/lanes/kv_lanes_cuda.h"
#include "ops/speculation/lanes/lanes_cuda.h"

namespace heddle::cuda::speculation {
namespace {

/// RewindParams.
struct GroupRewind {
  GroupKv kv;
  ConstContiguousIndices accepted_counts, prefill_status;  // [num_requests]
  ConstContiguousIndices indptr;                           // [num_starts], or absent
  GroupCount num_active;
  uint32_t num_starts = 0, max_drafts = 0, num_requests = 0;
};

// Takes the rejected drafts of each active request off its cache. One thread per request;
// everything is loaded before anything is used, so that a request waits for memory twice:
// for its count of blocks, then for their ids. Grid and block: select_speculation_kernel. kLayout
// is that of the cache and the releases, kCounts of all else, which comes from another step.
template <IndexLayout kLayout, IndexLayout kCounts, ListOrder kOrder>
__global__ void __launch_bounds__(kMaxGroupThreads)
    rewind_lanes_kernel(const __grid_constant__ GroupRewind p) {
  begin_early(p);
  ListSums<kOrder> sums(p.kv.list_sums);
  const uint32_t num_active = p.num_active.read<kCounts>();
  const LaneGroup group(0, blockDim.x, sums.block());
  const uint32_t row = group.row;
  const bool is_request = row < p.num_requests;
  GroupRow<kLayout> kv_row(p.kv, row, is_request);
  const LoadedIndex accepted = load_if<kCounts>(is_request, p.accepted_counts, row);
  const LoadedIndex status = load_if<kCounts>(is_request, p.prefill_status, row);
  const bool has_starts = is_request && row + 1 < p.num_starts;
  const LoadedIndex start = load_if<kCounts>(has_starts, p.indptr, row);
  const LoadedIndex next = load_if<kCounts>(has_starts, p.indptr, row + 1);
  const bool is_active = row < num_active;
  kv_row.load_ids(p.kv, row, is_active, false);

  int64_t drafts = p.max_drafts;
  if (p.num_starts > 0) {
    const int64_t n = next.value() - start.value();
    drafts = n < 0 ? 0 : n < drafts ? n : drafts;
  }
  const int64_t taken = accepted.value() < 0 ? 0 : accepted.value();
  const auto rejected =
      static_cast<uint32_t>(status.value() == 1 || taken > drafts ? 0 : drafts - taken);
  const bool is_large = is_active && !kv_row.is_small();
  BasicKvRewind<int32_t> rewind{};
  if (is_active && !is_large) rewind = kv_row.plan(p.kv, rejected);
  auto num_released = static_cast<uint32_t>(rewind.num_released);
  if (is_large) num_released = count_released(p.kv, kv_row.row(), rejected);
  __shared__ uint32_t warp_totals[kMaxGroupThreads / 32];  // [warps]: ids that each releases
  GroupPlaces places;
  places.count(p.kv, group, num_released, warp_totals);
  if (p.kv.is_listed) __syncthreads();
  places.publish(p.kv, sums, blockDim.x, warp_totals);
  finish_rewind<kLayout>(p, group, kv_row, kv_row.row(), is_active, is_large, rejected, rewind,
                         num_released, places, sums);
}

}  // namespace

SpeculationChoice rewind_kv_cache_by_lane_groups(const ExecContext& ctx,
                                                 const RewindParams& params) {
  const Releases& releases = params.releases;
  const DraftLayout& layout = params.layout;
  const int64_t num_rows = params.num_rows();
  uint64_t* const list_sums = list_sums_of(ctx.exchange);
  IndexPacker of_state, of_counts;
  GroupRewind p{.kv = make_group_kv(params.kv, releases, num_rows, of_state),
                .accepted_counts = of_counts(params.accepted_counts),
                .prefill_status = of_counts(params.prefill_status),
                .indptr = of_counts(layout.indptr()),
                .num_active = group_count(params.num_active, of_counts),
                .num_starts = static_cast<uint32_t>(layout.num_starts()),
                .max_drafts = static_cast<uint32_t>(layout.max_drafts()),
                .num_requests = static_cast<uint32_t>(params.num_requests)};
  const IndexLayout state = of_state.layout(), counts = of_counts.layout();
  const SpeculationChoice choice = select_speculation_kernel(
      {.num_rows = num_rows,
       .is_large = is_large(params.kv, releases, num_rows) ||
                   layout.num_starts() > kMaxOfLaneGroups || layout.max_drafts() >= kSmall,
       .has_gaps = state == IndexLayout::kStrided || counts == IndexLayout::kStrided ||
                   releases.mask.has_gaps(),
       .is_listed = releases.listed,
       .has_list_sums = list_sums != nullptr,
       .has_clusters = can_start_early<
           rewind_lanes_kernel<IndexLayout::kI32, IndexLayout::kI32, ListOrder::kLaunched>>(
           ctx.device.index)});
  if (choice.kernel != SpeculationKernel::kLaneGroups) return choice;
  set_choice(choice, list_sums, p.kv);
  const auto launch = [&]<IndexLayout kLayout, IndexLayout kCounts>() {
    launch_lanes<rewind_lanes_kernel<kLayout, kCounts, ListOrder::kLaunched>,
                 rewind_lanes_kernel<kLayout, kCounts, ListOrder::kStarted>>(
        ctx, choice, choice.blocks, choice.threads, p);
  };
  constexpr IndexLayout kI32 = IndexLayout::kI32, kMixed = IndexLayout::kMixed;
  if (counts == state) {
    dispatch_layout(state,
                    [&]<IndexLayout kLayout>() { launch.template operator()<kLayout, kLayout>(); });
  } else if (state == kI32) {
    launch.template operator()<kI32, kMixed>();
  } else {
    launch.template operator()<kMixed, kMixed>();
  }
  return choice;
}

}  // namespace heddle::cuda::speculation
