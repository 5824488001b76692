#include <algorithm>

#include "ops/lora/run/run_grouped.h"

namespace heddle {

template <class T>
void run_grouped(const ExecContext& ctx, const LoraGpuCall& call, bool is_aligned,
                 const cuda::lora::SiteParams& site, const std::byte* plan) {
  const int64_t tokens = call.input.size(0);
  const bool has_a = call.a != nullptr, has_b = call.b != nullptr;
  const int max_rank = site.max_rank;
  if (max_rank == 0) return;
  int64_t num_outputs = 0;
  for (int s = 0; s < site.num_slices; ++s) num_outputs += site.slices[s].width;
  const LoraGroupedShape shape{.num_tokens = tokens,
                               .num_slices = site.num_slices,
                               .num_chunks = site.num_chunks,
                               .max_rank = max_rank,
                               .in_features = has_a ? site.in_features : 0,
                               .is_aligned = is_aligned,
                               .num_outputs = num_outputs};
  const cuda::lora::GroupedConfig config = select_prefill_config(shape, ctx.info);
  cuda::lora::GroupedParams p{};
  p.site = site;
  p.plan = cuda::lora::grouped_rows(plan, tokens);
  p.h_width = static_cast<int32_t>(lora_h_width(site.num_slices, site.max_rank));
  p.slice_ranks = p.h_width / site.num_slices;
  p.part_stride = tokens * p.h_width;
  p.max_passes = config.max_passes;
  p.max_split = config.max_split;
  p.shrink_blocks = config.shrink_blocks;
  p.h_values = config.h_values;
  p.has_a = has_a;
  p.has_b = has_b;
  for (int s = 0; s < site.num_slices; ++s) {
    p.output_tiles_per_row_tile +=
        (site.slices[s].width + config.tile_outputs - 1) / config.tile_outputs;
    p.output_tile_end[s] = p.output_tiles_per_row_tile;
  }
  if (p.output_tiles_per_row_tile == 0) return;
  const cuda::lora::GroupedLaunch launch{
      .config = config, .device = ctx.device.index, .stream = ctx.stream};
  const auto expand = [&] {
    if (!has_b) return cuda::lora::launch_grouped_sum(p, launch);
    if (config.expand_sm90) {
      cuda::lora::launch_grouped_join<T>(p, launch);
      return cuda::lora::launch_grouped_expand_sm90<T>(p, launch);
    }
    is_aligned ? cuda::lora::launch_grouped_expand<T>(p, launch)
               : cuda::lora::launch_grouped_expand_general<T>(p, launch);
  };
  if (!has_a) return expand();
  Workspace& workspace = require_workspace(ctx, "lora");
  const Workspace::Scope scope(workspace);
  const int64_t parts = std::max<int64_t>(cuda::lora::kMinParts, config.max_split);
  const int64_t h_values =
      config.expand_sm90 ? joined_h_values(tokens, site.num_slices, max_rank) : 0;
  p.partials = workspace.take<float>(size_t(parts * p.part_stride + h_values)).data();
  p.h = reinterpret_cast<std::byte*>(p.partials + parts * p.part_stride);
  p.h_row_vectors = joined_row_vectors(max_rank);
  p.h_slice_bytes = tokens * p.h_row_vectors * int64_t{cuda::lora::kHVectorBytes};
  if (config.shrink_sm90) {
    cuda::lora::launch_grouped_shrink_sm90<T>(p, launch);
  } else if (is_aligned) {
    cuda::lora::launch_grouped_shrink<T>(p, launch);
  } else {
    cuda::lora::launch_grouped_shrink_general<T>(p, launch);
  }
  expand();
}

template void run_grouped<half>(const ExecContext&, const LoraGpuCall&, bool,
                                const cuda::lora::SiteParams&, const std::byte*);
template void run_grouped<bfloat16>(const ExecContext&, const LoraGpuCall&, bool,
                                    const cuda::lora::SiteParams&, const std::byte*);

}  // namespace heddle
