#include "ops/lora/lora_apply.h"

#include <algorithm>

#include "heddle/core/validate.h"

#include "ops/lora/checks/check_sizes.h"
#include "ops/lora/checks/slice_name.h"
#include "ops/lora/checks/validate.h"
#include "ops/lora/run/run_on_gpu.h"
#include "ops/lora/site_products.h"

namespace heddle {
namespace {

void check_slices(const ExecContext& ctx, std::span<const LoraSlice> slices, Dim& tokens) {
  for (size_t s = 0; s < slices.size(); ++s) {
    const SliceName name(s, ".y");
    const ConstTensorView y = slices[s].y;
    Dim out("out_features");
    check_device(ctx, {{name.c_str(), y}});
    check_shape(name.c_str(), y, {&tokens, &out});
    check_floats(name.c_str(), y);
  }
}

void check_tables(const ExecContext& ctx, const LoraTable& a, const LoraTable& b,
                  std::span<const LoraSlice> slices, int64_t in_features) {
  const int num_slices = static_cast<int>(slices.size());
  check_table(ctx, "a", a);
  check_table(ctx, "b", b);
  HEDDLE_CHECK(a.num_slices == num_slices, "a.num_slices is ", a.num_slices, ", but there are ",
               num_slices, " slices");
  HEDDLE_CHECK(b.num_slices == num_slices, "b.num_slices is ", b.num_slices, ", but there are ",
               num_slices, " slices");
  HEDDLE_CHECK(a.num_slots == b.num_slots, "a.num_slots is ", a.num_slots, ", but b.num_slots is ",
               b.num_slots);
  for (int s = 0; s < num_slices; ++s) {
    const SliceName y(size_t(s), ".y.size(1)");
    check_features("x.size(1)", in_features, "a", a, s);
    check_features(y.c_str(), slices[size_t(s)].y.size(1), "b", b, s);
  }
}

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

void check_apply(const ExecContext& ctx, std::span<const LoraSlice> slices,
                 const ConstTensorView& x, const LoraTable& a, const LoraTable& b,
                 const LoraBatch& batch) {
  Dim tokens("num_tokens"), in("in_features");
  check_device(ctx, {{"x", x}});
  check_shape("x", x, {&tokens, &in});
  check_floats("x", x);
  check_slices(ctx, slices, tokens);
  check_tables(ctx, a, b, slices, in.value());
  check_batch(ctx, batch, tokens.value(), TakesPairs::kYes);
}

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
