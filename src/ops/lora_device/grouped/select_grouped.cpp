#include "ops/lora_device/grouped/select_grouped.h"

#include <algorithm>
#include <limits>
#include <ostream>

#include "core/math.h"
#include "ops/lora_device/table/adapter_table_kernels.h"

namespace heddle {
namespace {

using cuda::lora::GroupedConfig;
using cuda::lora::GroupedRanks;

constexpr int64_t kPartialBytes = int64_t{32} << 20;  // more only where it must be
// Outputs of all rows for each multiprocessor from which on they are streamed, for ranks up to 16
// and up to 64.
constexpr int64_t kStreamedNarrow = 350'000, kStreamedWide = 20'000;
constexpr int kMaxChunksOfWideTiles = cuda::lora::kChains;

/// Parts of the chains, at most, whose sums the workspace has place for.
int max_split(int64_t num_tokens, int64_t width) {
  int split = cuda::lora::kChains;
  while (split > cuda::lora::kMinSplit && split * num_tokens * width * 4 > kPartialBytes)
    split /= 2;
  return split;
}

/// Whether the second kernel is the one that streams y, after one more that joins h: where that
/// saves more than it costs.
bool streams_y(const LoraCall& call, GroupedRanks ranks, int num_sms) {
  if (ranks == GroupedRanks::kUpTo512) return false;
  const int64_t least = ranks == GroupedRanks::kUpTo16 ? kStreamedNarrow : kStreamedWide;
  return call.tokens * call.num_outputs >= least * num_sms;
}

/// Rank tiles of a warp of the first kernel, and the passes over the ranks that this makes.
void select_shrink(const LoraCall& call, int num_sms, GroupedConfig& c) {
  const int64_t width = lora_h_width(call.num_slices, call.used_rank);
  const int64_t rank_tiles = width / cuda::lora::kTileRanks;
  if (rank_tiles <= 3) {
    c.shrink_tiles = 1;
  } else if (rank_tiles <= 6 || call.num_chunks() > kMaxChunksOfWideTiles || !c.is_aligned) {
    c.shrink_tiles = 2;
  } else {  // registers that sums of several chunks would need are taken
    c.shrink_tiles = 4;
  }
  const auto passes = [&] {
    return static_cast<int>(std::max<int64_t>(1, ceil_div(rank_tiles, 3 * c.shrink_tiles)));
  };
  // Few row tiles: ranks are shared out as well, if that gives no more items than blocks.
  const int64_t row_tiles =
      ceil_div(call.tokens, call.tokens <= cuda::lora::kFewRows ? cuda::lora::kGroupedTileFewRows
                                                                : cuda::lora::kGroupedTileSomeRows);
  const int64_t chain_items = row_tiles * cuda::lora::kChains;
  while (c.shrink_tiles > 1 && chain_items * passes() * 2 <= num_sms) c.shrink_tiles /= 2;
  c.shrink_blocks = num_sms;
  c.max_passes = passes();
  c.max_split = call.num_chunks() <= 1 ? 1 : max_split(call.tokens, width);
}

void select_expand(const LoraCall& call, int num_sms, GroupedConfig& c) {
  if (call.halves == LoraHalves::kExpand || call.used_rank > 64 || !c.is_aligned) {
    c.ranks = GroupedRanks::kUpTo512;
    c.h_values = c.is_aligned ? cuda::lora::kLongHValues
                              : std::min(cuda::lora::kGeneralHValues,
                                         cuda::lora::kGroupedTileRows *
                                             static_cast<int>(ceil_div(call.used_rank, 32)) * 32);
  } else if (call.used_rank > 16) {
    c.ranks = GroupedRanks::kUpTo64;
    c.h_values = 64 * cuda::lora::kGroupedTileRows;
  } else {
    c.ranks = GroupedRanks::kUpTo16;
    c.h_values = 16 * cuda::lora::kGroupedTileRows;
  }
  c.expand_sm90 = c.shrink_sm90 && streams_y(call, c.ranks, num_sms);
  cuda::lora::ExpandForm form =
      c.is_aligned ? cuda::lora::expand_form(c.ranks) : cuda::lora::kGeneralForm;
  if (c.expand_sm90) form = cuda::lora::kStreamForm;
  c.expand_blocks = form.blocks * num_sms;
  c.tile_outputs = form.outputs();
}

}  // namespace

GroupedConfig select_grouped(const LoraCall& call, const DeviceInfo& info) {
  GroupedConfig c{};
  c.is_aligned = call.vectors && call.y_vectors;
  c.shrink_sm90 = c.is_aligned && info.compute_capability == 90;
  select_shrink(call, info.num_sms, c);
  select_expand(call, info.num_sms, c);
  return c;
}

bool can_be_grouped(const LoraCall& call) {
  // Up to 256 rows with ranks up to 64 are faster as one window.
  if (call.tokens <= cuda::lora::kWindowRows && call.max_rank <= 64) return false;
  if (!has_grouped_plan(call.tokens)) return false;
  const int64_t rank_tiles = lora_h_width(call.num_slices, call.max_rank) / cuda::lora::kTileRanks;
  const int64_t items =
      call.tokens *
      std::max({rank_tiles * cuda::lora::kChains,
                call.num_outputs / cuda::lora::kMinWarpOutputs + call.num_slices, int64_t{32}});
  return std::max(items, call.input_features * 2) < std::numeric_limits<int32_t>::max();
}

int64_t joined_h_values(int64_t num_tokens, int64_t num_slices, int64_t max_rank) {
  const int row_vectors = joined_row_vectors(static_cast<int>(std::min<int64_t>(max_rank, 64)));
  return num_tokens * num_slices * row_vectors * int64_t{kVectorBytes / sizeof(float)};
}

int64_t grouped_partials(int64_t num_tokens, int64_t num_slices, int64_t max_rank) {
  if (!has_grouped_plan(num_tokens)) return 0;
  const int64_t values = num_tokens * lora_h_width(num_slices, max_rank);
  return joined_h_values(num_tokens, num_slices, max_rank) +
         std::max(cuda::lora::kMinSplit * values,
                  std::min(cuda::lora::kChains * values, kPartialBytes / int64_t{sizeof(float)}));
}

cuda::lora::GroupedParams pack_grouped(const LoraLaunch& part,
                                       const cuda::lora::GroupedConfig& config) {
  const LoraCall& call = part.call;
  cuda::lora::GroupedParams p{};
  p.site = pack_site(part);
  p.plan = cuda::lora::grouped_rows(part.plan + windows_plan_bytes(call.tokens, call.max_rank),
                                    call.tokens);
  p.h_width = static_cast<int32_t>(lora_h_width(call.num_slices, call.used_rank));
  p.slice_ranks = p.h_width / call.num_slices;
  p.part_stride = call.tokens * p.h_width;
  p.max_passes = config.max_passes;
  p.max_split = config.max_split;
  p.shrink_blocks = config.shrink_blocks;
  p.h_values = config.h_values;
  p.h_row_vectors = joined_row_vectors(call.used_rank);
  p.h_slice_bytes = call.tokens * p.h_row_vectors * int64_t{cuda::lora::kHVectorBytes};
  p.has_a = part.site.a != nullptr;
  p.has_b = part.site.b != nullptr;
  for (int s = 0; s < call.num_slices; ++s) {
    p.output_tiles_per_row_tile += ceil_div(p.site.slices[s].width, config.tile_outputs);
    p.output_tile_end[s] = p.output_tiles_per_row_tile;
  }
  return p;
}

}  // namespace heddle

namespace heddle::cuda::lora {

std::ostream& operator<<(std::ostream& out, const GroupedConfig& c) {
  constexpr const char* kRanks[] = {"rank<=16", "rank<=64", "rank<=512"};
  return out << (c.is_aligned ? "aligned " : "general ") << kRanks[static_cast<int>(c.ranks)]
             << " shrink" << (c.shrink_sm90 ? "_sm90" : "") << " tiles=" << c.shrink_tiles
             << " passes=" << c.max_passes << " max_split=" << c.max_split << " expand"
             << (c.expand_sm90 ? "_stream_sm90" : "") << " blocks=" << c.expand_blocks;
}

}  // namespace heddle::cuda::lora
