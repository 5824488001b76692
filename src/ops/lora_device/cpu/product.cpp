#include "ops/lora_device/cpu/product.h"

#include "core/math.h"

namespace heddle {
namespace {

// Columns of one work item: enough work to be handed out, few enough to share. Multiples of every
// block of the loops.
constexpr int64_t kMinRankChunk = 32, kMaxRankChunk = 128;
constexpr int64_t kMinOutChunk = 128, kMaxOutChunk = 2048;
constexpr int64_t kItemsPerThread = 2;

/// Adds what the rows of a tile read of columns [begin, end) of slice s.
void add_weight(cpu::FetchAhead& ahead, const LoraProduct& p, const GroupTile& tile, int s,
                int64_t begin, int64_t end) {
  const LoraWeight w = p.weight_of(tile.slot, s);
  if (w.data == nullptr) return;
  const int64_t size = int64_t(size_of(p.weights.dtype)), stride = w.row_stride * size;
  const int64_t columns = std::min(end, p.is_shrink ? w.rank : p.slices[s].width) - begin;
  const int64_t depth = p.is_shrink ? p.features : w.rank;
  const auto* data = static_cast<const std::byte*>(w.data);
  p.is_by_width ? ahead.add({data + begin * size, columns * size, depth, stride})
                : ahead.add({data + begin * stride, depth * size, columns, stride});
}

}  // namespace

void check_used_ranks(const RowGroups& groups, const char* name, const LoraTable& table,
                      int first_slice, int num_slices, const char* limit_name, int64_t limit) {
  if (table.entries == nullptr) {
    HEDDLE_CHECK(table.max_rank <= limit, name, ".max_rank is ", table.max_rank, ", but ",
                 limit_name, " is ", limit);
    return;
  }
  for (int t = 0; t < groups.num_tiles; ++t) {
    const int64_t slot = groups.tiles[t].slot;
    for (int s = first_slice; s < first_slice + num_slices; ++s) {
      const LoraWeight& w = table.entries[slot * table.num_slices + s];
      if (w.data == nullptr) continue;
      HEDDLE_CHECK(w.rank >= 1 && w.rank <= table.max_rank, name, ".entries[slot ", slot,
                   ", slice ", s, "].rank is ", w.rank,
                   ", expected 1 to max_rank = ", table.max_rank);
      HEDDLE_CHECK(w.rank <= limit, name, ".entries[slot ", slot, ", slice ", s, "].rank is ",
                   w.rank, ", but ", limit_name, " is ", limit);
    }
  }
}

void use_table(LoraProduct& p, const LoraTable& table, int first_slice) {
  p.weights = table;
  p.first_slice = first_slice;
  p.is_by_width = p.is_shrink == (table.layout == LoraLayout::kRankMinor);
}

void use_rows(LoraProduct& p, const RowGroups& groups, int64_t first, const ConstTensorView& input,
              const LoraBatch& batch) {
  p.groups = &groups;
  p.input = row_of(input, first);
  p.input_stride = input.stride(0);
  p.input_dtype = input.dtype();
  p.row_scale = batch.row_scale ? batch.row_scale.data<float>() + first : nullptr;
}

LoraProductSlice product_slice(const TensorView& y, int64_t first, int64_t column, int64_t width) {
  return {.y = row_of(y, first) + column * int64_t(size_of(y.dtype())),
          .y_stride = y.stride(0),
          .width = width,
          .chunk = width,
          .first_item = 0,
          .y_dtype = y.dtype()};
}

int64_t cut_product(const ExecContext& ctx, LoraProduct& p, std::span<LoraProductSlice> slices) {
  const int64_t threads = num_threads(ctx);
  const int64_t min_chunk = p.is_shrink ? kMinRankChunk : kMinOutChunk;
  const int64_t max_chunk = p.is_shrink ? kMaxRankChunk : kMaxOutChunk;
  const int64_t tiles = p.groups->num_tiles, num_slices = int64_t(slices.size());
  const int64_t wanted = threads == 1 ? 1 : ceil_div(kItemsPerThread * threads, tiles * num_slices);
  p.items_per_tile = 0;
  for (LoraProductSlice& slice : slices) {
    const int64_t chunk = ceil_div(ceil_div(slice.width, wanted), min_chunk) * min_chunk;
    slice.chunk = std::clamp(chunk, min_chunk, max_chunk);
    slice.first_item = p.items_per_tile;
    p.items_per_tile += static_cast<int>(ceil_div(slice.width, slice.chunk));
  }
  p.slices = slices.data();
  p.num_slices = static_cast<int>(num_slices);
  return tiles * p.items_per_tile;
}

void add_items(cpu::FetchAhead& ahead, const LoraProduct& p, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const auto [tile, s, first] = p.place_of(i);
    add_weight(ahead, p, tile, s, first, first + p.slices[s].chunk);
  }
}

void add_columns(cpu::FetchAhead& ahead, const LoraProduct& p, int s, int64_t begin, int64_t end) {
  for (int t = 0; t < p.groups->num_tiles; ++t) {
    add_weight(ahead, p, p.groups->tiles[t], s, begin, end);
  }
}

void run_product(const ExecContext& ctx, LoraProduct& p, std::span<LoraProductSlice> slices) {
  const int64_t num_items = cut_product(ctx, p, slices);
  // Items of shrink run faster together.
  const int64_t grain = p.is_shrink ? ceil_div(num_items, kItemsPerThread * num_threads(ctx)) : 1;
  parallel_for(ctx, num_items, grain,
               [&p](int64_t begin, int64_t end) { cpu::lora::run_product_items(p, begin, end); });
}

}  // namespace heddle
