#include "ops/lora/run/select_kernel.h"

#include <algorithm>
#include <ostream>

#include "heddle/core/check.h"

#include "core/math.h"
#include "ops/lora/fused/exchange.h"
#include "ops/lora_device/grouped/select_grouped.h"

namespace heddle {
namespace {

constexpr int64_t kExchangeWordBytes = 8;
constexpr int64_t kHalfBlocksPerSm = 2;
constexpr int kMaxUnalignedRank = 64;  // of the aligned form's kernel with one item a block

int64_t num_windows(const LoraCall& call) { return ceil_div(call.tokens, cuda::lora::kWindowRows); }

/// Row tiles of up to `max_rows` rows of one adapter each, in a batch that has as many as can be.
int64_t max_row_tiles(int64_t rows, int64_t num_slots, int64_t max_rows) {
  const int64_t groups = std::min(rows, num_slots);
  return groups + (rows - groups) / max_rows;
}

// Microseconds on an H200 where nothing is aligned, fitted to what bench_lora_shapes_cuda measures
// both ways. What a block does one after the other counts.

double windows_us(const LoraCall& call, int num_sms) {
  const int64_t rows = std::min<int64_t>(call.tokens, cuda::lora::kWindowRows);
  const int64_t row_tiles = max_row_tiles(rows, call.num_slots, cuda::lora::kRowTileRows);
  const int64_t rank_tiles = ceil_div(call.max_rank, cuda::lora::kTileRanks);
  const int64_t blocks =
      std::max<int64_t>(1, cuda::lora::kFusedBlocksPerSm * int64_t{num_sms} / num_windows(call));
  const int64_t shrinks =
      ceil_div(row_tiles * rank_tiles * call.num_slices * call.num_chunks(), blocks);
  const int64_t expands = ceil_div(row_tiles * call.output_items, blocks);
  const double rows_of_tile = double(rows) / double(std::max<int64_t>(1, row_tiles));
  return 3.0 * double(shrinks) + double(expands) * (double(rank_tiles) + rows_of_tile / 6);
}

double grouped_us(const LoraCall& call, int num_sms) {
  const int64_t tile_rows = call.tokens <= 1024 ? 32 : call.tokens <= 4096 ? 64 : 128;
  const int64_t row_tiles = max_row_tiles(call.tokens, call.num_slots, tile_rows);
  const int64_t rank_tiles = ceil_div(call.max_rank, cuda::lora::kTileRanks);
  const int64_t all_tiles = rank_tiles * call.num_slices;
  const int64_t passes = ceil_div(all_tiles, all_tiles <= 3 ? 3 : 6);
  const int64_t steps = ceil_div(call.input_features, 64);
  const double shrinks = double(row_tiles * passes * steps) / num_sms;
  const double expands =
      double(max_row_tiles(call.tokens, call.num_slots, 16) * call.output_items) / (2 * num_sms);
  return 15 + 1.5 * shrinks + expands * (0.8 + double(rank_tiles));
}

/// Whether the exchange has place for the sums of the first launch of so many windows.
bool fits_exchange(const LoraCall& call, int64_t windows) {
  const int64_t rows = std::min<int64_t>(call.tokens, cuda::lora::kWindowRows);
  const int64_t slices = std::min(call.num_slices, cuda::lora::kMaxSlices);
  const int64_t words = rows * partials_of_row(call.input_features, slices, call.max_rank);
  return int64_t{cuda::lora::kPartials.begin} + windows * words * kExchangeWordBytes <=
         call.exchange_bytes;
}

/// Work items of a window in the batch that has most.
struct MaxItems {
  int64_t shrinks, expands;

  MaxItems(const LoraCall& call, int64_t rows) {
    const int64_t row_tiles = max_row_tiles(rows, call.num_slots, cuda::lora::kRowTileRows);
    const int64_t rank_tiles = ceil_div(call.max_rank, cuda::lora::kTileRanks);
    const int64_t chunks = call.num_chunks();
    shrinks = row_tiles * rank_tiles * call.num_slices * chunks;
    expands = row_tiles * call.output_items;
    const int64_t divisor = std::max<int64_t>({chunks, call.output_items, 1024});
    HEDDLE_CHECK(std::max(shrinks, expands) * divisor < int64_t{1} << 32,
                 "in_features or out_features is too large: ", shrinks, " and ", expands,
                 " work items for ", rows, " rows");
  }
};

void select_fused(const LoraCall& call, int64_t windows, int num_sms, LoraChoice& to) {
  const MaxItems items(call, windows == 1 ? call.tokens : cuda::lora::kWindowRows);
  const int64_t most = std::max<int64_t>({items.shrinks, items.expands, 1});
  const int64_t resident = std::max<int64_t>(
      1, int64_t{cuda::lora::kFusedBlocksPerSm} * num_sms / windows);  // blocks of a window
  to.fused = {.is_aligned = call.vectors,
              .has_rank_above_16 = call.max_rank > cuda::lora::kTileRanks,
              .one_item_per_block = most <= resident,
              .num_blocks = static_cast<int>(std::min(most, resident))};
  const bool has_kernel = call.vectors || !to.fused.has_rank_above_16 ||
                          (to.fused.one_item_per_block && call.max_rank <= kMaxUnalignedRank);
  to.is_general = windows != 1 || !call.entries || !has_kernel;
}

HalvesLaunch select_halves(const LoraCall& call, int num_sms) {
  const MaxItems items(call, call.tokens);
  const auto blocks = [&](int64_t num_items) {
    return static_cast<int>(std::clamp<int64_t>(num_items, 1, kHalfBlocksPerSm * num_sms));
  };
  return {.is_aligned = call.vectors,
          .shrink_blocks = blocks(items.shrinks),
          .expand_blocks = blocks(items.expands)};
}

const char* name(LoraRoute route) {
  switch (route) {
    case LoraRoute::kFused: return "fused";
    case LoraRoute::kFusedWindows: return "fused windows";
    case LoraRoute::kHalves: return "two launches";
    case LoraRoute::kGrouped: return "grouped";
  }
  return "";
}

}  // namespace

LoraRoute select_window_route(const LoraCall& call) {
  const bool may_fuse = call.halves == LoraHalves::kBoth && call.int32_strides;
  return may_fuse && fits_exchange(call, 1) ? LoraRoute::kFused : LoraRoute::kHalves;
}

LoraRoute select_lora_route(const LoraCall& call, const DeviceInfo& info) {
  const bool is_long = call.tokens > cuda::lora::kWindowRows;
  const bool has_both = call.halves == LoraHalves::kBoth;
  if (!can_be_grouped(call) || (!is_long && !has_both)) return select_window_route(call);
  const bool fits = is_long
                        ? has_both && call.int32_strides && fits_exchange(call, num_windows(call))
                        : fits_exchange(call, 1);
  if (!fits) return LoraRoute::kGrouped;
  const LoraRoute by_window = is_long ? LoraRoute::kFusedWindows : select_window_route(call);
  if (call.vectors && call.y_vectors) return is_long ? LoraRoute::kGrouped : by_window;
  return grouped_us(call, info.num_sms) < windows_us(call, info.num_sms) ? LoraRoute::kGrouped
                                                                         : by_window;
}

LoraChoice select_lora_kernel(const LoraCall& call, LoraRoute route, const DeviceInfo& info) {
  LoraChoice choice;
  choice.route = route;
  switch (choice.route) {
    case LoraRoute::kFused: select_fused(call, 1, info.num_sms, choice); break;
    case LoraRoute::kFusedWindows:
      select_fused(call, num_windows(call), info.num_sms, choice);
      break;
    case LoraRoute::kHalves: choice.halves = select_halves(call, info.num_sms); break;
    case LoraRoute::kGrouped: choice.grouped = select_grouped(call, info); break;
  }
  return choice;
}

std::ostream& operator<<(std::ostream& out, const LoraChoice& c) {
  out << name(c.route);
  switch (c.route) {
    case LoraRoute::kFused:
    case LoraRoute::kFusedWindows:
      out << (c.is_general ? " general" : c.fused.is_aligned ? " aligned" : " unaligned");
      out << (c.fused.has_rank_above_16 ? " rank>16" : " rank<=16");
      out << " blocks=" << c.fused.num_blocks;
      return out << (c.fused.one_item_per_block ? " one_item_per_block" : "");
    case LoraRoute::kHalves:
      out << (c.halves.is_aligned ? " aligned" : " general");
      return out << " blocks=" << c.halves.shrink_blocks << ',' << c.halves.expand_blocks;
    case LoraRoute::kGrouped: return out << ' ' << c.grouped;
  }
  return out;
}

}  // namespace heddle
