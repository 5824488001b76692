#pragma once

#include <span>

#include "heddle/ops/lora.h"

#include "ops/lora_device/call/lora_site.h"
#include "ops/lora_device/cpu/product.h"

namespace heddle {

/// The two products of a linear site on the CPU, shrink h = A x and expand y += B h, for the rows
/// of one window at a time.
class SiteProducts {
 public:
  /// Takes workspace_bytes; the site's slices and tables must outlive it.
  SiteProducts(Workspace& workspace, const LoraSite& site);
  [[nodiscard]] static size_t workspace_bytes(int64_t num_tokens, int num_slices, int max_rank);

  /// Makes both ready for the rows of the window that begins at row `first`. Throws where the ranks
  /// of an adapter that they use are wrong.
  void open_window(const LoraBatch& batch, const RowGroups& groups, int64_t first);

  /// Runs both, each in a parallel section.
  void run(const ExecContext& ctx);

  /// For calls that run both in a section of their own: all items of shrink, then any columns.
  [[nodiscard]] int64_t cut_shrink(const ExecContext& ctx) {
    return cut_product(ctx, shrink_, h_slices_);
  }
  [[nodiscard]] const LoraProduct& shrink() const { return shrink_; }
  [[nodiscard]] const LoraProduct& expand() const { return expand_; }

 private:
  const LoraSite& site_;
  TensorView h_;  // [rows of a window, num_slices * max_rank]
  std::span<LoraProductSlice> h_slices_, y_slices_;
  LoraProduct shrink_, expand_;
};

}  // namespace heddle
