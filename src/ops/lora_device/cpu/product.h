#pragma once

#include <algorithm>
#include <span>

#include "heddle/core/check.h"
#include "heddle/ops/lora.h"

#include "core/fetch_ahead.h"
#include "ops/lora_device/cpu/product_kernels.h"

namespace heddle {

/// The first element of row `row` of a matrix.
template <class Byte>
Byte* row_of(const BasicTensorView<Byte>& t, int64_t row) {
  return t.raw() + row * t.stride(0) * int64_t(size_of(t.dtype()));
}

/// The ranks of the entries that the rows of a window use: they size what the loops read and write.
/// `limit` is the extent of an axis called `limit_name`.
void check_used_ranks(const RowGroups& groups, const char* name, const LoraTable& table,
                      int first_slice, int num_slices, const char* limit_name, int64_t limit);

/// The weights of a product whose is_shrink is set: slices of a table from first_slice on.
void use_table(LoraProduct& p, const LoraTable& table, int first_slice);

/// The rows of input from the window's first one on, and their factors.
void use_rows(LoraProduct& p, const RowGroups& groups, int64_t first, const ConstTensorView& input,
              const LoraBatch& batch);

/// Columns of y from `column` on, `width` of them.
LoraProductSlice product_slice(const TensorView& y, int64_t first, int64_t column, int64_t width);

/// Cuts the slices into work items, which run_product_items takes; returns how many. How they are
/// cut does not change a result.
int64_t cut_product(const ExecContext& ctx, LoraProduct& p, std::span<LoraProductSlice> slices);

/// Adds the weights that run_product_items and run_product_columns read.
void add_items(cpu::FetchAhead& ahead, const LoraProduct& p, int64_t begin, int64_t end);
void add_columns(cpu::FetchAhead& ahead, const LoraProduct& p, int s, int64_t begin, int64_t end);

/// Cuts the slices and runs the items in a parallel section.
void run_product(const ExecContext& ctx, LoraProduct& p, std::span<LoraProductSlice> slices);

/// Plans the batch window by window and calls run(plan, first row) for each.
template <class Run>
void for_each_window(const LoraBatch& batch, int64_t num_tokens, int64_t num_slots, Run&& run) {
  RowGroups groups;
  for (int64_t first = 0; first < num_tokens; first += kWindowRows) {
    const int64_t rows = std::min<int64_t>(kWindowRows, num_tokens - first);
    group_rows(batch, first, static_cast<int>(rows), num_slots, groups);
    if (groups.num_tiles > 0) run(groups, first);
  }
}

}  // namespace heddle
