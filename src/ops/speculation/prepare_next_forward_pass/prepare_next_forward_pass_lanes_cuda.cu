#include "cuda/begin_early_cuda.h"
#include "cuda/early_launch.h"

#include "ops/speculation/lanes/draft_lanes_cuda.h"
#include "ops/speculation/lanes/lanes_cuda.h"

namespace heddle::cuda::speculation {
namespace {

/// PrepareParams.
struct GroupPrepare {
  ContiguousIndices sampled, last_seq, accepted_counts;  // [num_rows]
  ConstContiguousIndices last_ones;                      // [num_rows]
  ContiguousIndexRows accepted_tokens;                   // [num_rows, max_drafts]
  ConstContiguousIndices input, output, required;        // [num_tokens]
  const std::byte* mask = nullptr;                       // [num_tokens]
  GroupDrafts layout;
  GroupCount num_decode;
  uint32_t num_rows = 0, num_accepted_rows = 0;
  uint8_t group_shift = 0;
  bool write_prefill_rows = false;
};

// What each row goes on with. A group of lanes for each, a lane for each of its tokens; output and
// required are loaded for all of them, since the last accepted one is among them in any batch
// that was verified. Grid and block: select_speculation_kernel.
template <IndexLayout kLayout>
__global__ void __launch_bounds__(kMaxGroupThreads)
    prepare_lanes_kernel(const __grid_constant__ GroupPrepare p) {
  begin_early(p);
  const LaneGroup group(p.group_shift, blockDim.x, blockIdx.x);
  const uint32_t row = group.row, lane = group.lane;
  const bool is_row = row < p.num_rows;
  const LoadedIndex last_one = load_if<kLayout>(is_row, p.last_ones, row);
  const uint32_t num_decode = p.num_decode.read<kLayout>();
  const bool is_decode = row < num_decode;
  const GroupRange range = is_row ? range_of<kLayout>(p.layout, row, num_decode) : GroupRange{};
  const bool is_token = lane < range.length;
  const uint32_t t = range.begin + lane;
  const LoadedIndex drafted = load_if<kLayout>(is_token && lane > 0, p.input, t);
  LoadedIndex output = load_if<kLayout>(is_token, p.output, t);
  LoadedIndex required = load_if<kLayout>(is_token, p.required, t);
  const bool keeps = is_token && lane > 0 && is_decode && p.mask[t] != std::byte{0};
  const uint32_t num_kept = __popc(group.bits(__ballot_sync(kAllLanes, keeps)));

  const int64_t last = last_one.value(), at = last - range.begin;
  const bool is_known = last >= 0 && last < p.layout.num_tokens;
  const bool is_own = at >= 0 && at < range.length;
  if (is_row && is_known && !is_own) {
    output = load_if<kLayout>(true, p.output, static_cast<uint32_t>(last));
    required = load_if<kLayout>(true, p.required, static_cast<uint32_t>(last));
  }
  const bool stores = is_row && lane == (is_own ? at : 0);
  store_if<kLayout>(stores, p.sampled, row, is_known ? output.value() : kNoToken);
  store_if<kLayout>(stores, p.last_seq, row, is_known ? required.value() : -1);
  const bool takes = is_known && is_decode;
  const bool counts = row < p.num_accepted_rows && (takes || !is_known || p.write_prefill_rows);
  store_if<kLayout>(counts && lane > 0 && lane <= p.layout.max_drafts,
                    p.accepted_tokens.row_given(row), lane - 1,
                    takes && keeps ? drafted.value() : kNoToken);
  store_if<kLayout>(counts && lane == 0, p.accepted_counts, row, takes ? num_kept : 0);
}

}  // namespace

SpeculationChoice prepare_next_forward_pass_by_lane_groups(const ExecContext& ctx,
                                                           const PrepareParams& params) {
  const DraftLayout& layout = params.layout;
  IndexPacker pack;
  GroupPrepare p{.sampled = pack(params.next.sampled_tokens),
                 .last_seq = pack(params.next.last_accepted_seq),
                 .accepted_counts = pack(params.next.accepted_counts),
                 .last_ones = pack(params.last_one_indices),
                 .accepted_tokens = pack(params.next.accepted_tokens),
                 .input = pack(params.input_tokens),
                 .output = pack(params.output_tokens),
                 .required = pack(params.required_logit_indices),
                 .mask = params.accepted_tokens_mask.data(),
                 .layout = make_group_drafts(layout, pack),
                 .num_decode = group_count(params.num_decode, pack),
                 .num_rows = static_cast<uint32_t>(params.num_rows),
                 .num_accepted_rows = static_cast<uint32_t>(params.num_accepted_rows),
                 .write_prefill_rows = params.write_prefill_rows};
  const SpeculationChoice choice =
      select_speculation_kernel({.num_rows = params.num_rows,
                                 .tokens_per_row = 1 + layout.max_drafts(),
                                 .is_large = is_large(layout, params.num_rows),
                                 .has_gaps = pack.layout() == IndexLayout::kStrided ||
                                             params.accepted_tokens_mask.has_gaps()});
  if (choice.kernel != SpeculationKernel::kLaneGroups) return choice;
  p.group_shift = static_cast<uint8_t>(choice.group_shift);
  dispatch_layout(pack.layout(), [&]<IndexLayout kLayout>() {
    launch_early<prepare_lanes_kernel<kLayout>>(ctx, choice.blocks, choice.threads, p);
  });
  return choice;
}

}  // namespace heddle::cuda::speculation
