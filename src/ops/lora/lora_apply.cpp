#include "ops/lora/lora_apply.h"

#include <algorithm>

#include "heddle/core/validate.h"

#include "ops/lora/run/run_on_gpu.h"
#include "ops/lora_device/checks/check_call.h"
#include "ops/lora_device/checks/check_sizes.h"
#include "ops/lora_device/checks/validate.h"
#include "ops/lora_device/cpu/site_products.h"

namespace heddle {
namespace {

void apply_on_cpu(const ExecContext& ctx, const LoraSite& site, const LoraBatch& batch) {
  Workspace& workspace = require_workspace(ctx, "lora_apply");
  const Workspace::Scope scope(workspace);
  SiteProducts products(workspace, site);
  for_each_window(batch, site.input.size(0), site.a->num_slots,
                  [&](const RowGroups& groups, int64_t first) {
                    products.open_window(batch, groups, first);
                    products.run(ctx);
                  });
}

}  // namespace

void lora_apply(const ExecContext& ctx, std::span<const LoraSlice> slices, ConstTensorView x,
                const LoraTable& a, const LoraTable& b, const LoraBatch& batch) {
  check_apply(ctx, slices, x, a, b, batch);
  if (x.num_elements() == 0 || a.max_rank == 0) return;
  if (ctx.device.type == DeviceType::kCuda) {
    const auto is_empty = [](const LoraSlice& slice) { return slice.y.size(1) == 0; };
    if (std::ranges::all_of(slices, is_empty)) return;
  } else if (validating()) {
    validate_batch(batch, x.size(0), "a", a);
    validate_batch(batch, x.size(0), "b", b);
  }
  const LoraSite site{.slices = slices, .input = x, .a = &a, .b = &b};
  batch.pair_starts ? apply_pairs(ctx, site, batch) : apply_site(ctx, site, batch);
}

void apply_site(const ExecContext& ctx, const LoraSite& site, const LoraBatch& batch) {
  if (ctx.device.type != DeviceType::kCuda) return apply_on_cpu(ctx, site, batch);
  run_on_gpu(ctx, "lora_apply", site, batch);
}

size_t lora_apply_workspace_bytes(Device device, int64_t num_tokens, int64_t in_features,
                                  int num_slices, int max_rank) {
  check_sizes(num_tokens, max_rank);
  check_extent("in_features", in_features);
  check_extent("num_slices", num_slices);
  if (device.type == DeviceType::kCuda) {
    return lora_gpu_workspace_bytes(num_tokens, in_features, num_slices, max_rank);
  }
  return SiteProducts::workspace_bytes(num_tokens, num_slices, max_rank);
}

}  // namespace heddle
