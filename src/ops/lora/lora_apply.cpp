#include "ops/lora/lora_apply.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "heddle/core/product.h"
#include "heddle/core/validate.h"

#include "ops/lora/checks/check_sizes.h"
#include "ops/lora/checks/validate.h"
#include "ops/lora/cpu/product.h"
#include "ops/lora/run/run_on_gpu.h"

namespace heddle {
namespace {

/// The two halves of an adapter must agree on the rank of a slice that both have.
void check_equal_ranks(const RowGroups& groups, const LoraTable& a, const LoraTable& b,
                       int first_slice, int num_slices) {
  for (int t = 0; t < groups.num_tiles; ++t) {
    for (int s = first_slice; s < first_slice + num_slices; ++s) {
      const int32_t slot = groups.tiles[t].slot;
      const LoraWeight wa = a.weight(slot, s), wb = b.weight(slot, s);
      if (wa.data == nullptr || wb.data == nullptr) continue;
      HEDDLE_CHECK(wa.rank == wb.rank, "the rank of a[slot ", slot, ", slice ", s, "] is ", wa.rank,
                   ", but b has ", wb.rank);
    }
  }
}

/// "slices[12].y" and what follows it, without an allocation: every call names its slices, whether
/// or not there is an error.
class SliceName {
 public:
  SliceName(size_t slice, std::string_view axis) {
    char* end = std::ranges::copy(std::string_view("slices["), text_.begin()).out;
    end = std::to_chars(end, end + 20, slice).ptr;
    for (const std::string_view part : {std::string_view("].y"), axis}) {
      end = std::ranges::copy(part, end).out;
    }
    *end = '\0';
  }
  [[nodiscard]] const char* c_str() const { return text_.data(); }

 private:
  std::array<char, 48> text_;
};

void check_slices(const ExecContext& ctx, std::span<const LoraSlice> slices, Dim& tokens) {
  for (size_t s = 0; s < slices.size(); ++s) {
    const SliceName name(s, "");
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
    const SliceName y(size_t(s), ".size(1)");
    check_features("x.size(1)", in_features, "a", a, s);
    check_features(y.c_str(), slices[size_t(s)].y.size(1), "b", b, s);
  }
}

void apply_on_cpu(const ExecContext& ctx, const LoraSite& site, const LoraBatch& batch) {
  const LoraTable &a = *site.a, &b = *site.b;
  const int num_slices = static_cast<int>(site.slices.size()), first_slice = site.first_slice;
  const int64_t tokens = site.input.size(0);
  Workspace& workspace = require_workspace(ctx, "lora_apply");
  const Workspace::Scope scope(workspace);
  const int64_t window = std::min<int64_t>(tokens, kWindowRows);
  const int64_t h_width = int64_t{num_slices} * a.max_rank;
  const auto h_floats = workspace.take<float>(size_t(window * h_width));
  const TensorView h = host_view(h_floats.data(), {window, h_width});
  const auto work = workspace.take<LoraProductSlice>(site.slices.size());

  for_each_window(batch, tokens, a.num_slots, [&](const RowGroups& groups, int64_t first) {
    check_used_ranks(groups, "a", a, first_slice, num_slices, "a.max_rank", a.max_rank);
    check_used_ranks(groups, "b", b, first_slice, num_slices, "b.max_rank", b.max_rank);
    check_equal_ranks(groups, a, b, first_slice, num_slices);

    LoraProduct shrink{.features = site.input.size(1), .scale = 1.0f, .is_shrink = true};
    use_table(shrink, a, first_slice);
    use_rows(shrink, groups, first, site.input, {});
    shrink.partner = b;
    shrink.has_partner = true;
    for (int s = 0; s < num_slices; ++s) {
      work[size_t(s)] = product_slice(h, 0, int64_t{s} * a.max_rank, a.max_rank);
    }
    run_product(ctx, shrink, work);

    LoraProduct expand{.input_slice_stride = a.max_rank, .scale = 1.0f, .accumulate = true};
    use_table(expand, b, first_slice);
    use_rows(expand, groups, 0, h, {});
    if (batch.row_scale) expand.row_scale = batch.row_scale.data<float>() + first;
    expand.partner = a;
    expand.has_partner = true;
    for (size_t s = 0; s < site.slices.size(); ++s) {
      const TensorView& y = site.slices[s].y;
      work[s] = product_slice(y, first, 0, y.size(1));
    }
    run_product(ctx, expand, work);
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
  const int64_t window = std::min<int64_t>(num_tokens, kWindowRows);
  return Workspace::bytes_for<float>(size_t(window * num_slices * max_rank)) +
         Workspace::bytes_for<LoraProductSlice>(size_t(num_slices));
}

}  // namespace heddle
