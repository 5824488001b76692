#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/lora_device/cpu/row_groups.h"

namespace heddle {

/// Shrink and expand are one product, y[t] (+)= factor * input[t] W, with a weight W [depth, width]
/// for each slot and slice:
///   shrink: input = x, W = A transposed, depth = in_features, width = rank
///   expand: input = h, W = B transposed, depth = rank, width = out_features
/// A slot's W lies either with its width without gaps ("rows", fast) or with its depth without
/// gaps.

/// What one slice of a site writes.
struct LoraProductSlice {
  std::byte* y;      // the window's first row, the slice's first column
  int64_t y_stride;  // elements between rows
  int64_t width;     // out_features; for shrink an upper bound of the rank
  int64_t chunk;     // columns of one work item
  int first_item;    // within the items of a tile
  DType y_dtype;
};

struct LoraProduct {
  const RowGroups* groups = nullptr;
  const std::byte* input = nullptr;  // the window's first row
  int64_t input_stride = 0;          // elements between rows
  /// Elements between the columns that two slices read: 0, or the width of one slice of h.
  int64_t input_slice_stride = 0;
  int64_t features = 0;  // in_features of shrink, unused by expand
  const LoraProductSlice* slices = nullptr;
  LoraTable weights{};  // slices from first_slice on
  /// The other half, with has_partner: where its weight is null, so is this one's.
  LoraTable partner{};
  const float* row_scale = nullptr;  // [rows of the window] or nullptr
  int num_slices = 0, first_slice = 0, items_per_tile = 0;
  float scale = 1.0f;
  DType input_dtype = DType::kFloat32;
  bool is_shrink = false;   // width is the rank; else depth is
  bool is_by_width = true;  // the width of W is without gaps
  bool has_partner = false;
  bool accumulate = false;

  /// What an item of a tile covers: from column `begin` on of a slice.
  struct ItemPlace {
    const GroupTile& tile;
    int slice;
    int64_t begin;
  };
  [[nodiscard]] ItemPlace place_of(int64_t item) const {
    const int of_tile = static_cast<int>(item % items_per_tile);
    int s = num_slices - 1;
    while (of_tile < slices[s].first_item) --s;
    return {groups->tiles[item / items_per_tile], s,
            (of_tile - slices[s].first_item) * slices[s].chunk};
  }

  /// The weight of a slot for slice s of the call, or null data where the adapter does not touch
  /// it.
  [[nodiscard]] LoraWeight weight_of(int32_t slot, int s) const {
    LoraWeight w = weights.weight(slot, first_slice + s);
    if (has_partner && partner.weight(slot, first_slice + s).data == nullptr) w.data = nullptr;
    return w;
  }
};

namespace cpu::lora {
/// The work items [begin, end) of groups->num_tiles * items_per_tile: a tile of rows times a chunk
/// of columns each.
void run_product_items(const LoraProduct& p, int64_t begin, int64_t end);
/// Columns [begin, end) of slice s, for the rows of all tiles.
void run_product_columns(const LoraProduct& p, int s, int64_t begin, int64_t end);
}  // namespace cpu::lora
}  // namespace heddle
