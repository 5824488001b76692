#include "ops/lora/run/select_kernel.h"

#include <algorithm>

#include "ops/lora/grouped/grouped_params.h"

namespace heddle {
namespace {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Row tiles of up to `max_rows` rows of one adapter each, in a batch that has as many as can be.
int64_t num_row_tiles(int64_t rows, int64_t num_slots, int64_t max_rows) {
  const int64_t groups = std::min(rows, num_slots);
  return groups + (rows - groups) / max_rows;
}

// Microseconds on an H200 where nothing is aligned, fitted to what bench_lora_shapes_cuda measures both routes. What a block does one after
// the other counts.

double windows_us(const LoraWork& work) {
  const int64_t windows = ceil_div(work.tokens, cuda::lora::kWindowRows);
  const int64_t rows = std::min<int64_t>(work.tokens, cuda::lora::kWindowRows);
  const int64_t row_tiles = num_row_tiles(rows, work.num_slots, cuda::lora::kRowTileRows);
  const int64_t rank_tiles = ceil_div(work.max_rank, cuda::lora::kTileRanks);
  const int64_t chunks = ceil_div(work.in_features, cuda::lora::kChunkFeatures);
  const int64_t blocks =
      std::max<int64_t>(1, cuda::lora::kFusedBlocksPerSm * int64_t{work.num_sms} / windows);
  const int64_t shrinks = ceil_div(row_tiles * rank_tiles * work.num_slices * chunks, blocks);
  const int64_t expands = ceil_div(row_tiles * work.output_tiles, blocks);
  const double rows_of_tile = double(rows) / double(std::max<int64_t>(1, row_tiles));
  return 3.0 * double(shrinks) + double(expands) * (double(rank_tiles) + rows_of_tile / 6);
}

double grouped_us(const LoraWork& work) {
  const int64_t tile_rows = work.tokens <= 1024 ? 32 : work.tokens <= 4096 ? 64 : 128;
  const int64_t row_tiles = num_row_tiles(work.tokens, work.num_slots, tile_rows);
  const int64_t rank_tiles = ceil_div(work.max_rank, cuda::lora::kTileRanks);
  const int64_t all_tiles = rank_tiles * work.num_slices;
  const int64_t passes = ceil_div(all_tiles, all_tiles <= 3 ? 3 : 6);
  const int64_t steps = ceil_div(work.in_features, 64);
  const double shrinks = double(row_tiles * passes * steps) / work.num_sms;
  const double expands =
      double(num_row_tiles(work.tokens, work.num_slots, 16) * work.output_tiles) /
      (2 * work.num_sms);
  return 15 + 1.5 * shrinks + expands * (0.8 + double(rank_tiles));
}

}  // namespace

LoraRoute select_route(const LoraWork& work) {
  const bool is_long = work.tokens > cuda::lora::kShortBatchRows;
  const bool fits_windows = is_long ? work.fits_at_once : work.fits_exchange;
  if (work.is_aligned) return is_long || !fits_windows ? LoraRoute::kGrouped : LoraRoute::kWindows;
  if (!fits_windows || grouped_us(work) < windows_us(work)) return LoraRoute::kGrouped;
  return is_long ? LoraRoute::kFusedWindows : LoraRoute::kWindows;
}

}  // namespace heddle
