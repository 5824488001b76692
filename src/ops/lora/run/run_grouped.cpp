#include "ops/lora/run/run_grouped.h"

#include <algorithm>
#include <limits>

#include "ops/lora/table/adapter_table_kernels.h"

namespace heddle {
namespace {

using cuda::lora::GroupedConfig;
using cuda::lora::GroupedRanks;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr int64_t kPartialBytes = int64_t{32} << 20;  // more only where it must be
// Outputs of all rows for each multiprocessor from which on they are streamed, for ranks up to 16 and up to 64.
constexpr int64_t kStreamedNarrow = 350'000, kStreamedWide = 60'000;
constexpr int kMaxChunksOfWideTiles = cuda::lora::kChains;

/// Parts of the chains, at most, whose sums the workspace has place for.
int max_split(int64_t num_tokens, int64_t width) {
  int split = cuda::lora::kChains;
  while (split > cuda::lora::kMinParts && split * num_tokens * width * 4 > kPartialBytes)
    split /= 2;
  return split;
}

/// Whether the second kernel is the one that streams y, after one more that joins h: where that saves more than it costs.
bool streams_y(const LoraGroupedShape& shape, GroupedRanks ranks, int num_sms) {
  if (ranks == GroupedRanks::kAny) return false;
  const int64_t least = ranks == GroupedRanks::kNarrow ? kStreamedNarrow : kStreamedWide;
  return shape.num_tokens * shape.num_outputs >= least * num_sms;
}

bool fits_lines(const TensorView& y) {
  const size_t element = size_of(y.dtype());
  return (reinterpret_cast<uintptr_t>(y.raw()) | uintptr_t(y.stride(0)) * element |
          uintptr_t(y.size(1)) * element) %
             kVectorBytes ==
         0;
}

}  // namespace

GroupedConfig select_prefill_config(const LoraGroupedShape& shape, const DeviceInfo& info) {
  const int64_t width = lora_h_width(shape.num_slices, shape.max_rank);
  const int64_t rank_tiles = width / cuda::lora::kTileRanks;
  GroupedConfig c{};
  c.is_aligned = shape.is_aligned;
  c.shrink_sm90 = c.is_aligned && info.compute_capability == 90;
  if (rank_tiles <= 3) {
    c.shrink_tiles = 1;
  } else if (rank_tiles <= 6 || shape.num_chunks > kMaxChunksOfWideTiles || !c.is_aligned) {
    c.shrink_tiles = 2;
  } else {  // registers that sums of several chunks would need are taken
    c.shrink_tiles = 4;
  }
  const auto passes = [&] {
    return static_cast<int>(std::max<int64_t>(1, ceil_div(rank_tiles, 3 * c.shrink_tiles)));
  };
  // Few row tiles: ranks are shared out as well, if that gives no more items than blocks.
  const int64_t row_tiles = ceil_div(shape.num_tokens, shape.num_tokens <= cuda::lora::kFewRows
                                                           ? cuda::lora::kGroupedTileFewRows
                                                           : cuda::lora::kGroupedTileSomeRows);
  const int64_t chain_items = row_tiles * cuda::lora::kChains;
  while (c.shrink_tiles > 1 && chain_items * passes() * 2 <= info.num_sms) c.shrink_tiles /= 2;
  c.shrink_blocks = info.num_sms;
  c.max_passes = passes();
  c.max_split = shape.num_chunks <= 1 ? 1 : max_split(shape.num_tokens, width);
  if (shape.in_features == 0 || shape.max_rank > 64 || !c.is_aligned) {
    c.ranks = GroupedRanks::kAny;
    c.h_values = c.is_aligned ? cuda::lora::kLongHValues
                              : std::min(cuda::lora::kGeneralHValues,
                                         cuda::lora::kGroupedTileRows *
                                             static_cast<int>(ceil_div(shape.max_rank, 32)) * 32);
  } else if (shape.max_rank > 16) {
    c.ranks = GroupedRanks::kWide;
    c.h_values = 64 * cuda::lora::kGroupedTileRows;
  } else {
    c.ranks = GroupedRanks::kNarrow;
    c.h_values = 16 * cuda::lora::kGroupedTileRows;
  }
  c.expand_sm90 = c.shrink_sm90 && streams_y(shape, c.ranks, info.num_sms);
  cuda::lora::ExpandForm form =
      c.is_aligned ? cuda::lora::expand_form(c.ranks) : cuda::lora::kGeneralForm;
  if (c.expand_sm90) form = cuda::lora::kStreamForm;
  c.expand_blocks = form.blocks * info.num_sms;
  c.tile_outputs = form.outputs();
  return c;
}

bool is_prefill(const LoraGpuCall& call) {
  const int64_t tokens = call.input.size(0), num_slices = std::ssize(call.slices);
  if (!may_prefill(tokens, call.table().max_rank)) return false;
  // Kernels count rows and work items in 32 bits.
  int64_t outputs = 0;
  for (const LoraSlice& slice : call.slices) outputs += slice.y.size(1);
  const int64_t tiles = lora_h_width(num_slices, call.table().max_rank) / cuda::lora::kTileRanks;
  const int64_t items =
      tokens * std::max({tiles * cuda::lora::kChains,
                         outputs / cuda::lora::kMinWarpOutputs + num_slices, int64_t{32}});
  return std::max(items, call.input.size(1) * 2) < std::numeric_limits<int32_t>::max();
}

bool is_aligned_prefill(const LoraGpuCall& call, bool is_aligned) {
  if (!is_aligned || call.b == nullptr) return is_aligned;
  // Kernels read whole vectors of B.
  if (call.a == nullptr && call.input.size(1) < call.b->max_rank) return false;
  return std::ranges::all_of(call.slices,
                             [](const LoraSlice& slice) { return fits_lines(slice.y); });
}

int64_t joined_h_values(int64_t num_tokens, int64_t num_slices, int64_t max_rank) {
  const int row_vectors = joined_row_vectors(static_cast<int>(std::min<int64_t>(max_rank, 64)));
  return num_tokens * num_slices * row_vectors * int64_t{kVectorBytes / sizeof(float)};
}

int64_t grouped_partials(int64_t num_tokens, int64_t num_slices, int64_t max_rank) {
  if (!may_prefill(num_tokens, max_rank)) return 0;
  const int64_t values = num_tokens * lora_h_width(num_slices, max_rank);
  return joined_h_values(num_tokens, num_slices, max_rank) +
         std::max(cuda::lora::kMinParts * values,
                  std::min(cuda::lora::kChains * values, kPartialBytes / int64_t{sizeof(float)}));
}

}  // namespace heddle
