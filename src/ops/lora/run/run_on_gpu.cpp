#include "ops/lora/run/run_on_gpu.h"

#include <algorithm>

#include "heddle/config.h"
#include "heddle/core/check.h"
#include "heddle/core/dispatch.h"
#include "heddle/core/validate.h"

#include "core/kernel_log.h"
#include "core/math.h"
#include "core/scoped_operation.h"
#include "ops/lora/run/pack_params.h"
#include "ops/lora_device/call/lora_call.h"
#include "ops/lora_device/checks/validate.h"
#include "ops/lora_device/grouped/select_grouped.h"
#include "ops/lora_device/plan/make_plan.h"

namespace heddle {
namespace {

using cuda::lora::HalfStep;
using cuda::lora::kMaxSlices;
using cuda::lora::kWindowRows;

constexpr int64_t kMaxRowsWithoutPlan = 32;  // that have ids; as measured on an H200
constexpr int64_t kMaxFeaturesOfRow =
    int64_t{cuda::lora::kRowChunks} * cuda::lora::kChains * cuda::lora::kChunkFeatures;

template <class T>
void run_fused(const ExecContext& ctx, const LoraLaunch& part, const LoraChoice& choice,
               uint32_t spin_limit) {
  if (!choice.is_general) {
    const cuda::lora::FusedParams p = pack_fused(ctx, part, choice, spin_limit);
    return cuda::lora::launch_fused_aligned<T>(p, choice.fused, ctx.stream);
  }
  const auto p = pack_fused_general(ctx, part, choice, spin_limit);
  const int64_t windows =
      choice.route == LoraRoute::kFused ? 1 : ceil_div(part.call.tokens, kWindowRows);
  cuda::lora::launch_fused_general<T>(p, choice.fused.num_blocks, static_cast<int>(windows),
                                      ctx.device.index, ctx.stream);
}

/// Whether a call of one half without a plan takes a kernel in which each row is a row tile: few
/// rows and little work, as measured on an H200. With more, rows that share weights pay.
bool takes_rows(const ExecContext& ctx, const LoraCall& call) {
  const int64_t rank_tiles = ceil_div(call.used_rank, cuda::lora::kTileRanks);
  if (!call.vectors || call.num_slices != 1) return false;
  if (call.halves == LoraHalves::kExpand) {
    return call.tokens * call.output_items * rank_tiles <= int64_t{4} * ctx.info.num_sms;
  }
  return call.halves == LoraHalves::kShrink && call.tokens * rank_tiles <= ctx.info.num_sms &&
         call.input_features <= kMaxFeaturesOfRow && cuda::lora::can_shrink_rows(ctx.device.index);
}

void run_rows(const ExecContext& ctx, const LoraLaunch& part, const cuda::lora::HalfParams& p) {
  part.call.halves == LoraHalves::kExpand
      ? cuda::lora::launch_expand_rows(p, ctx.device.index, ctx.stream)
      : cuda::lora::launch_shrink_rows(p, ctx.device.index, ctx.stream);
}

template <class T>
void run_halves(const ExecContext& ctx, const char* op, const LoraLaunch& part,
                const HalvesLaunch& halves) {
  cuda::lora::HalfParams p = pack_halves(part);
  if (part.plan == nullptr && takes_rows(ctx, part.call)) return run_rows(ctx, part, p);
  const auto launch = [&](HalfStep step, int blocks) {
    p.block_reciprocal = reciprocal(blocks);
    const cuda::lora::HalfLaunch half{step, halves.is_aligned, blocks, ctx.device.index};
    cuda::lora::launch_half<T>(p, half, ctx.stream);
  };
  if (part.site.a == nullptr) return launch(HalfStep::kExpand, halves.expand_blocks);
  const int64_t partials =
      part.call.tokens * partials_of_row(p.in_features, p.num_slices, part.call.max_rank);
  Workspace& workspace = require_workspace(ctx, op);
  const Workspace::Scope scope(workspace);
  p.partials = workspace.take<float>(size_t(partials)).data();
  launch(HalfStep::kShrink, halves.shrink_blocks);
  launch(part.site.b != nullptr ? HalfStep::kExpand : HalfStep::kSum, halves.expand_blocks);
}

template <class T>
void launch_grouped_shrinks(const cuda::lora::GroupedParams& p,
                            const cuda::lora::GroupedLaunch& launch) {
  if (launch.config.shrink_sm90) return cuda::lora::launch_grouped_shrink_sm90<T>(p, launch);
  launch.config.is_aligned ? cuda::lora::launch_grouped_shrink<T>(p, launch)
                           : cuda::lora::launch_grouped_shrink_general<T>(p, launch);
}

template <class T>
void launch_grouped_expands(const cuda::lora::GroupedParams& p,
                            const cuda::lora::GroupedLaunch& launch) {
  if (!p.has_b) return cuda::lora::launch_grouped_sum(p, launch);
  if (launch.config.expand_sm90) {
    cuda::lora::launch_grouped_join<T>(p, launch);
    return cuda::lora::launch_grouped_expand_sm90<T>(p, launch);
  }
  launch.config.is_aligned ? cuda::lora::launch_grouped_expand<T>(p, launch)
                           : cuda::lora::launch_grouped_expand_general<T>(p, launch);
}

template <class T>
void run_grouped(const ExecContext& ctx, const LoraLaunch& part,
                 const cuda::lora::GroupedConfig& config) {
  const LoraCall& call = part.call;
  if (call.used_rank == 0 || call.num_outputs == 0) return;
  cuda::lora::GroupedParams p = pack_grouped(part, config);
  const cuda::lora::GroupedLaunch launch{
      .config = config, .device = ctx.device.index, .stream = ctx.stream};
  if (!p.has_a) return launch_grouped_expands<T>(p, launch);
  Workspace& workspace = require_workspace(ctx, "lora");
  const Workspace::Scope scope(workspace);
  const int64_t sums = std::max<int64_t>(cuda::lora::kMinSplit, config.max_split) * p.part_stride;
  const int64_t h_values =
      config.expand_sm90 ? joined_h_values(call.tokens, call.num_slices, call.used_rank) : 0;
  p.partials = workspace.take<float>(size_t(sums + h_values)).data();
  p.h = reinterpret_cast<std::byte*>(p.partials + sums);
  launch_grouped_shrinks<T>(p, launch);
  launch_grouped_expands<T>(p, launch);
}

template <class T>
void run_part(const ExecContext& ctx, const char* op, const LoraLaunch& part,
              const LoraChoice& choice, uint32_t spin_limit) {
  log_choice(op, choice, part.call);
  switch (choice.route) {
    case LoraRoute::kFused:
    case LoraRoute::kFusedWindows: return run_fused<T>(ctx, part, choice, spin_limit);
    case LoraRoute::kHalves: return run_halves<T>(ctx, op, part, choice.halves);
    case LoraRoute::kGrouped: return run_grouped<T>(ctx, part, choice.grouped);
  }
}

/// A call of more rows or slices than a launch takes, part by part; `route` is that of all.
template <class T>
void run_parts(const ExecContext& ctx, const char* op, const LoraSite& site, const LoraBatch& batch,
               const LoraCall& call, LoraRoute route, const std::byte* plan, uint32_t tag,
               uint32_t spin_limit) {
  const bool is_cut = is_by_window(route);
  const int64_t max_rows = is_cut ? kWindowRows : call.tokens;
  for (int64_t first = 0; first < call.tokens; first += max_rows) {
    for (int slice = 0; slice < call.num_slices; slice += kMaxSlices) {
      LoraSite some = site;
      some.slices =
          site.slices.subspan(size_t(slice), size_t(std::min(kMaxSlices, call.num_slices - slice)));
      some.first_slice += slice;
      const LoraCall of_part = describe_part(call, some, std::min(max_rows, call.tokens - first));
      const LoraLaunch part{some, batch, of_part, first, plan, tag, ctx.faults};
      // Parts may be smaller than the first one, so that their sums fit the exchange.
      const LoraRoute of_rows = is_cut ? select_window_route(of_part) : route;
      run_part<T>(ctx, op, part, select_lora_kernel(of_part, of_rows, ctx.info), spin_limit);
    }
  }
}

/// Whether the kernels of a call need no plan: for more rows one launch costs less than that each
/// block groups them. Of a call of both halves that is taken in parts the last may be fused.
bool needs_no_plan(const ExecContext& ctx, const LoraBatch& batch, const LoraCall& call,
                   LoraRoute route, bool is_one) {
  if (route != LoraRoute::kHalves || !is_one) return false;
  return (batch.slot_ids && call.tokens <= kMaxRowsWithoutPlan) || takes_rows(ctx, call);
}

LoraRoute route_of(const ExecContext& ctx, const LoraCall& call, const LoraGpuOptions& options) {
  if (!options.route) return select_lora_route(call, ctx.info);
  return *options.route == LoraRoute::kFused ? select_window_route(call) : *options.route;
}

void check_dtypes(const ExecContext& ctx, const LoraSite& site) {
  const LoraTable& table = site.table();
  if (site.a != nullptr && site.input.dtype() != table.dtype) {
    throw_error(ErrorCode::kUnsupported, "x is ", site.input.dtype(),
                ", expected the dtype of the weights on ", ctx.device, ": ", table.dtype);
  }
  const DType first = site.slices[0].y.dtype();
  for (const LoraSlice& slice : site.slices) {
    if (slice.y.dtype() == first) continue;
    throw_error(ErrorCode::kUnsupported, "slices[0].y is ", first, ", but another slice's is ",
                slice.y.dtype(), ": on ", ctx.device, " all have one dtype");
  }
}

}  // namespace

void run_on_gpu(const ExecContext& ctx, const char* op, const LoraSite& site,
                const LoraBatch& batch, const LoraGpuOptions& options) {
  if constexpr (kWithCuda) {
    const ScopedOperation operation(op);
    const LoraTable& table = site.table();
    const int64_t tokens = site.input.size(0);
    check_dtypes(ctx, site);
    if (batch.plan) check_plan(ctx, batch.plan, tokens, table.max_rank);
    if (validating()) cuda::lora::validate_batch(ctx, batch, tokens, site.a, site.b);
    const LoraCall call = describe(ctx, site);
    const LoraRoute route = route_of(ctx, call, options);
    const bool is_one =
        call.num_slices <= kMaxSlices && (tokens <= kWindowRows || !is_by_window(route));
    const std::byte* plan = batch.plan.raw();
    std::optional<Workspace::Scope> scope;
    if (plan == nullptr && !needs_no_plan(ctx, batch, call, route, is_one)) {
      Workspace& workspace = require_workspace(ctx, op);
      scope.emplace(workspace);
      std::byte* own = workspace.take<std::byte>(lora_plan_bytes(tokens, table.max_rank)).data();
      const bool groups = route == LoraRoute::kGrouped;
      make_plan(ctx, batch, tokens, table.num_slots, table.max_rank, {}, own,
                {.windows = !groups, .grouped = groups});
      plan = own;
    }
    const uint32_t tag = plan_tag(batch, tokens, table.num_slots, table.max_rank);
    dispatch_dtype<half, bfloat16>(table.dtype, op, [&]<class T>() {
      if (!is_one) {
        return run_parts<T>(ctx, op, site, batch, call, route, plan, tag, options.spin_limit);
      }
      const LoraLaunch whole{site, batch, call, 0, plan, tag, ctx.faults};
      run_part<T>(ctx, op, whole, select_lora_kernel(call, route, ctx.info), options.spin_limit);
    });
  } else {
    throw_error(ErrorCode::kUnsupported, op, ": built without CUDA");
  }
}

size_t lora_gpu_workspace_bytes(int64_t num_tokens, int64_t in_features, int num_slices,
                                int max_rank) {
  const int slices = std::min(num_slices, kMaxSlices);
  const int64_t rows = std::min<int64_t>(num_tokens, kWindowRows);
  const int64_t of_windows = rows * partials_of_row(in_features, slices, max_rank);
  const int64_t of_grouped = in_features == 0 ? 0 : grouped_partials(num_tokens, slices, max_rank);
  return Workspace::bytes_for<float>(size_t(std::max(of_windows, of_grouped))) +
         Workspace::bytes_for<std::byte>(lora_plan_bytes(num_tokens, max_rank));
}

}  // namespace heddle
