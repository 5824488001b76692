#include <algorithm>

#include "cuda/sm90/tensor_map.h"

#include "core/kernel_log.h"
#include "core/math.h"
#include "ops/linear_site/call/site_call.h"
#include "ops/linear_site/call/site_slices.h"
#include "ops/linear_site/packed/run_packed.h"
#include "ops/linear_site/prompt/prompt_params_cuda.h"
#include "ops/linear_site/prompt/prompt_shape.h"
#include "ops/linear_site/run/adapter_plan.h"
#include "ops/linear_site/run/run_portable.h"
#include "ops/linear_site/run/run_prompt.h"
#include "ops/lora_device/call/lora_call.h"
#include "ops/lora_device/grouped/select_grouped.h"
#include "ops/lora_device/table/adapter_table_kernels.h"

namespace heddle::cuda::linear_site {
namespace {

constexpr int kMaxPromptRank = 128;

/// Groups of so many row units, and what divides by their numbers.
void group_tiles(int group_units, PromptParams& p) {
  p.group_units = group_units;
  p.last_group = (p.num_row_units - 1) / group_units;
  const auto divisor = [](int32_t d) { return FastDivisor(static_cast<uint32_t>(d)); };
  p.of_tiles = divisor(group_units * std::max(p.num_output_tiles, 1));
  p.of_units = divisor(group_units);
  p.of_last_units = divisor(p.num_row_units - p.last_group * group_units);
}

PromptParams pack_prompt(std::span<const LinearSlice> slices, const ConstTensorView& x,
                         const PromptKernel& kernel) {
  PromptParams p{};
  const int64_t rows = x.size(0);
  p.x = make_tensor_map(x, kPromptTileRows);
  for (size_t s = 0; s < slices.size(); ++s) {
    const LinearSlice& slice = slices[s];
    const int64_t width = slice.weight.size(0);
    if (width > 0) {
      p.weights[s] = make_tensor_map(slice.weight, kernel.tile_outputs / kernel.cluster_size);
    }
    // The copy engine ends a row at a multiple of 16 bytes, so it would write into the next slice.
    const bool has_y_vectors =
        has_vectors(slice.y) && width * int64_t(size_of(slice.y.dtype())) % 16 == 0;
    if (width > 0 && has_y_vectors && slice.y.dtype() != DType::kFloat32) {
      p.y[s] = make_tensor_map(slice.y, kPromptWarpRows);
    }
    p.num_output_tiles += static_cast<int32_t>(ceil_div(width, int64_t{kernel.tile_outputs}));
    p.slices[s] = {.y = slice.y.raw(),
                   .y_stride = slice.y.stride(0),
                   .bias = slice.bias.raw(),
                   .width = static_cast<int32_t>(width),
                   .end_tile = p.num_output_tiles,
                   .has_vectors = has_y_vectors};
  }
  p.num_rows = static_cast<int32_t>(rows);
  p.num_slices = static_cast<int32_t>(slices.size());
  p.num_steps = static_cast<int32_t>(ceil_div(x.size(1), int64_t{kPromptStepFeatures}));
  p.num_row_units =
      static_cast<int32_t>(ceil_div(rows, int64_t{kPromptTileRows} * kernel.cluster_size));
  group_tiles(kernel.group_units, p);
  p.cluster_size = kernel.cluster_size;
  p.y_dtype = slices[0].y.dtype();
  return p;
}

/// The kernel of up to four slices; none where that for prompts does not take them.
PromptKernel kernel_of(const ExecContext& ctx, std::span<const LinearSlice> slices, int64_t rows) {
  return select_prompt_kernel(describe(slices, rows, sum_out_features(slices)), ctx.info);
}

/// Of lora_apply's call for some slices. It reads neither their y nor B: so it does not matter how
/// these lie.
LoraCall describe_shrink(const ExecContext& ctx, const LoraSite& site) {
  LoraCall call = describe(ctx, site);
  call.vectors = call.y_vectors = true;
  return call;
}

/// A x of the rows of some slices, for the products that follow.
template <class T>
PromptAdapters run_shrink(const ExecContext& ctx, const LoraSite& site, const LoraBatch& batch,
                          const LaunchPlan& plan, Workspace& workspace) {
  const LoraCall call = describe_shrink(ctx, site);
  const lora::GroupedConfig config = select_grouped(call, ctx.info);
  const LoraLaunch part{site, batch, call, 0, plan.bytes, plan.tag, ctx.faults};
  lora::GroupedParams p = pack_grouped(part, config);
  const int64_t sums = std::max<int64_t>(lora::kMinSplit, config.max_split) * p.part_stride;
  p.partials = workspace.take<float>(size_t(sums)).data();
  p.h = workspace.take<std::byte>(size_t(p.h_slice_bytes * call.num_slices)).data();
  p.row_adapters = workspace.take<lora::RowAdapter>(size_t(call.tokens * call.num_slices)).data();
  const lora::GroupedLaunch launch{
      .config = config, .device = ctx.device.index, .stream = ctx.stream};
  if (config.shrink_sm90) {
    lora::launch_grouped_shrink_sm90<T>(p, launch);
  } else {
    lora::launch_grouped_shrink<T>(p, launch);
  }
  lora::launch_grouped_join<T>(p, launch);
  return {.rows = p.row_adapters,
          .h = p.h,
          .b = site.b->entries + site.first_slice,
          .h_slice_bytes = p.h_slice_bytes,
          .h_row_vectors = p.h_row_vectors,
          .b_stride = site.b->num_slices,
          .first_output = 0};
}

/// Those of a launch that has outputs of one slice, from `first_output` on.
PromptAdapters of_slice(PromptAdapters all, size_t slice, int64_t first_output, int64_t rows) {
  all.rows += int64_t(slice) * rows;
  all.h += int64_t(slice) * all.h_slice_bytes;
  all.b += slice;
  all.first_output = static_cast<int32_t>(first_output);
  return all;
}

/// One launch, with the adapters whose A x has been launched.
template <class T>
void run_with_adapters(const ExecContext& ctx, std::span<const LinearSlice> slices,
                       const ConstTensorView& x, const PromptAdapters& adapters) {
  if (run_portable_prompt<T>(ctx, slices, x, adapters)) return;
  const PromptKernel kernel = kernel_of(ctx, slices, x.size(0));
  log_choice("linear_site", kernel);
  PromptParams p = pack_prompt(slices, x, kernel);
  p.adapters = adapters;
  launch_prompt<T>(p, kernel, ctx.device.index, ctx.stream);
}

}  // namespace

template <class T>
bool run_prompt(const ExecContext& ctx, std::span<const LinearSlice> slices,
                const ConstTensorView& x) {
  const PromptKernel kernel = kernel_of(ctx, slices, x.size(0));
  if (kernel.is_general) return false;
  log_choice("linear_site", kernel);
  launch_prompt<T>(pack_prompt(slices, x, kernel), kernel, ctx.device.index, ctx.stream);
  return true;
}

bool takes_prompt(const ExecContext& ctx, std::span<const LinearSlice> slices,
                  const ConstTensorView& x) {
  const auto takes = [&](const LinearSlice& slice) {
    return slice.y.size(1) == 0 || !kernel_of(ctx, {&slice, 1}, x.size(0)).is_general ||
           takes_portable(ctx, {&slice, 1}, LinearPath::kPrompt, x.size(0));
  };
  return x.stride(0) <= kMaxVectorStride && std::ranges::all_of(slices, takes);
}

template <class T>
void run_prompt_inside(const ExecContext& ctx, std::span<const LinearSlice> slices,
                       const ConstTensorView& x, const LinearAdapters& adapters,
                       Workspace& workspace) {
  const Workspace::Scope scope(workspace);
  const LaunchPlan plan =
      plan_of(ctx, adapters, x.size(0), {.windows = false, .grouped = true}, workspace);
  for_launches(slices, [&](std::span<const LinearSlice> some, size_t first) {
    if (sum_out_features(some) == 0) return;
    const Workspace::Scope of_some(workspace);
    const LoraSlices of_lora(some);
    const LoraSite site{.slices = of_lora.span(),
                        .input = x,
                        .a = &adapters.a,
                        .b = &adapters.b,
                        .first_slice = static_cast<int>(first)};
    const PromptAdapters inside = run_shrink<T>(ctx, site, adapters.batch, plan, workspace);
    if (!has_packed(some)) return run_with_adapters<T>(ctx, some, x, inside);
    const auto slice_products = [&](const LinearSlice& outputs, size_t slice,
                                    int64_t first_output) {
      run_with_adapters<T>(ctx, {&outputs, 1}, x, of_slice(inside, slice, first_output, x.size(0)));
    };
    run_dequantized<T>(ctx, some, x, slice_products, workspace);
  });
}

size_t prompt_workspace_bytes(int64_t num_tokens, int num_slices, int max_rank) {
  if (!has_grouped_plan(num_tokens)) return 0;
  const int64_t rows = num_tokens * std::min(num_slices, kMaxLaunchSlices);
  const int vectors = joined_row_vectors(std::min(max_rank, kMaxPromptRank));
  return Workspace::bytes_for<std::byte>(size_t(rows * vectors * lora::kHVectorBytes)) +
         Workspace::bytes_for<lora::RowAdapter>(size_t(rows));
}

template bool run_prompt<half>(const ExecContext&, std::span<const LinearSlice>,
                               const ConstTensorView&);
template bool run_prompt<bfloat16>(const ExecContext&, std::span<const LinearSlice>,
                                   const ConstTensorView&);
template void run_prompt_inside<half>(const ExecContext&, std::span<const LinearSlice>,
                                      const ConstTensorView&, const LinearAdapters&, Workspace&);
template void run_prompt_inside<bfloat16>(const ExecContext&, std::span<const LinearSlice>,
                                          const ConstTensorView&, const LinearAdapters&,
                                          Workspace&);

}  // namespace heddle::cuda::linear_site
