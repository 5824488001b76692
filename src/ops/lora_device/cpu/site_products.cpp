#include "ops/lora_device/cpu/site_products.h"

#include "heddle/core/product.h"

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

int64_t window_rows(int64_t num_tokens) { return std::min<int64_t>(num_tokens, kWindowRows); }

}  // namespace

size_t SiteProducts::workspace_bytes(int64_t num_tokens, int num_slices, int max_rank) {
  return Workspace::bytes_for<float>(size_t(window_rows(num_tokens) * num_slices * max_rank)) +
         2 * Workspace::bytes_for<LoraProductSlice>(size_t(num_slices));
}

SiteProducts::SiteProducts(Workspace& workspace, const LoraSite& site) : site_(site) {
  const int64_t rows = window_rows(site.input.size(0));
  const int64_t h_width = std::ssize(site.slices) * site.a->max_rank;
  h_ = host_view(workspace.take<float>(size_t(rows * h_width)).data(), {rows, h_width});
  h_slices_ = workspace.take<LoraProductSlice>(site.slices.size());
  y_slices_ = workspace.take<LoraProductSlice>(site.slices.size());
}

void SiteProducts::open_window(const LoraBatch& batch, const RowGroups& groups, int64_t first) {
  const LoraTable &a = *site_.a, &b = *site_.b;
  const int num_slices = static_cast<int>(site_.slices.size()), first_slice = site_.first_slice;
  check_used_ranks(groups, "a", a, first_slice, num_slices, "a.max_rank", a.max_rank);
  check_used_ranks(groups, "b", b, first_slice, num_slices, "b.max_rank", b.max_rank);
  check_equal_ranks(groups, a, b, first_slice, num_slices);

  shrink_ = {.features = site_.input.size(1), .scale = 1.0f, .is_shrink = true};
  use_table(shrink_, a, first_slice);
  use_rows(shrink_, groups, first, site_.input, {});
  shrink_.partner = b;
  shrink_.has_partner = true;

  expand_ = {.input_slice_stride = a.max_rank, .scale = 1.0f, .accumulate = true};
  use_table(expand_, b, first_slice);
  use_rows(expand_, groups, 0, h_, {});
  if (batch.row_scale) expand_.row_scale = batch.row_scale.data<float>() + first;
  expand_.partner = a;
  expand_.has_partner = true;
  for (int s = 0; s < num_slices; ++s) {
    const TensorView& y = site_.slices[size_t(s)].y;
    h_slices_[size_t(s)] = product_slice(h_, 0, int64_t{s} * a.max_rank, a.max_rank);
    y_slices_[size_t(s)] = product_slice(y, first, 0, y.size(1));
  }
  expand_.slices = y_slices_.data();
  expand_.num_slices = num_slices;
}

void SiteProducts::run(const ExecContext& ctx) {
  run_product(ctx, shrink_, h_slices_);
  run_product(ctx, expand_, y_slices_);
}

}  // namespace heddle
