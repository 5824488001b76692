#include "ops/lora/run/pack_params.h"

#include <algorithm>
#include <limits>

#include "core/math.h"
#include "ops/lora/fused/exchange.h"
#include "ops/lora_device/grouped/select_grouped.h"
#include "ops/lora_device/plan/plan_bytes.h"

namespace heddle {
namespace {

using cuda::lora::FusedParams;
using cuda::lora::HalfParams;
using cuda::lora::SiteParams;

constexpr int32_t kNoEnd = std::numeric_limits<int32_t>::max();

const cuda::lora::WindowPlan* window_plan_of(const LoraLaunch& part) {
  const auto bytes = int64_t(windows_plan_bytes(part.first_row, part.call.max_rank));
  return reinterpret_cast<const cuda::lora::WindowPlan*>(part.plan + bytes);
}

/// Rank tiles that the plan of a window has memory for, less one.
int32_t last_tile_of(const LoraCall& call) {
  return static_cast<int32_t>(
      cuda::lora::kWindowRows * ceil_div(call.max_rank, cuda::lora::kTileRanks) - 1);
}

/// Of a fused launch what both kernels take, in the order in which they use it.
void pack_common(const ExecContext& ctx, const LoraLaunch& part, const LoraChoice& choice,
                 uint32_t spin_limit, FusedParams& p) {
  const LoraSite& site = part.site;
  const LoraCall& call = part.call;
  p.arrivals = cuda::lora::kArrivals.words_in<uint64_t>(ctx.exchange);
  p.plan = window_plan_of(part);
  p.num_slices = call.num_slices;
  p.num_chunks = call.num_chunks();
  int32_t items = 0, wide_items = 0;  // of expand, and of items twice as wide
  for (int s = 0; s < cuda::lora::kMaxSlices; ++s) {
    if (s < call.num_slices) {
      const TensorView& y = site.slices[size_t(s)].y;
      const auto width = static_cast<int32_t>(y.size(1));
      items += ceil_div(width, cuda::lora::kTileOutputs);
      wide_items += ceil_div(width, 2 * cuda::lora::kTileOutputs);
      p.slices[s] = {first_row_of(y, part), static_cast<int32_t>(y.stride(0)), width};
    }
    if (s == cuda::lora::kMaxSlices - 1) break;
    p.end[0][s] = s < call.num_slices ? items : kNoEnd;
    p.end[1][s] = s < call.num_slices ? wide_items : kNoEnd;
  }
  p.items_per_row_tile[0] = items;
  p.items_per_row_tile[1] = wide_items;
  p.chunk_reciprocal = reciprocal(p.num_chunks);
  p.slice_reciprocal = reciprocal(p.num_slices);
  p.row_tile_reciprocal[0] = reciprocal(items);
  p.row_tile_reciprocal[1] = reciprocal(wide_items);
  p.block_reciprocal = reciprocal(choice.fused.num_blocks);
  p.last_tile = last_tile_of(call);
  p.input = first_row_of(site.input, part);
  p.input_stride = static_cast<int32_t>(site.input.stride(0));
  p.in_features = static_cast<int32_t>(call.input_features);
  p.max_rank = call.used_rank;
  p.scale = site.scale;
  p.partials = ctx.exchange.data() + cuda::lora::kPartials.begin;
  p.row_scale = row_scale_of(part);
  p.spin_limit = spin_limit;
  p.plan_tag = part.plan_tag;
  p.num_rows = static_cast<int32_t>(call.tokens);
  p.faults = part.faults;
}

}  // namespace

FusedParams pack_fused(const ExecContext& ctx, const LoraLaunch& part, const LoraChoice& choice,
                       uint32_t spin_limit) {
  FusedParams p{};
  const LoraSite& site = part.site;
  p.a = site.a->entries + site.first_slice;
  p.b = site.b->entries + site.first_slice;
  p.a_stride = site.a->num_slices;
  p.b_stride = site.b->num_slices;
  pack_common(ctx, part, choice, spin_limit, p);
  return p;
}

cuda::lora::FusedGeneralParams pack_fused_general(const ExecContext& ctx, const LoraLaunch& part,
                                                  const LoraChoice& choice, uint32_t spin_limit) {
  const LoraSite& site = part.site;
  const LoraCall& call = part.call;
  const int64_t rows = choice.route == LoraRoute::kFused ? call.tokens : cuda::lora::kWindowRows;
  cuda::lora::FusedGeneralParams p{};
  pack_common(ctx, part, choice, spin_limit, p);
  p.a_at = addresses(*site.a, site.first_slice, kMaxLoraRank);
  p.b_at = addresses(*site.b, site.first_slice, kMaxLoraRank);
  p.window_plan_bytes =
      int64_t(cuda::lora::window_plan_bytes(cuda::lora::kWindowRows, call.max_rank));
  p.window_words = rows * partials_of_row(call.input_features, call.num_slices, call.max_rank);
  p.y_dtype = site.slices[0].y.dtype();
  p.is_transposed_a = site.a->layout == LoraLayout::kRankMinor;
  p.is_transposed_b = site.b->layout == LoraLayout::kRankMajor;
  p.one_item_per_block = choice.fused.one_item_per_block;
  return p;
}

HalfParams pack_halves(const LoraLaunch& part) {
  HalfParams p{};
  static_cast<SiteParams&>(p) = pack_site(part);
  p.plan = part.plan != nullptr ? window_plan_of(part) : nullptr;
  p.num_rank_tiles = ceil_div(p.max_rank, cuda::lora::kTileRanks);
  p.first_row = part.first_row;
  p.rows = cuda::lora::batch_rows(part.batch, part.call.num_slots);
  p.is_bf16 = part.site.table().dtype == DType::kBFloat16;
  p.last_tile = last_tile_of(part.call);
  const bool has_b = part.site.b != nullptr;
  const int64_t item = has_b ? cuda::lora::kTileOutputs : cuda::lora::kSumRanks;
  for (int s = 0; s < cuda::lora::kMaxSlices; ++s) {
    for (int doubled = 0; doubled < 2; ++doubled) {
      int32_t& end = p.slices[s].end[doubled];
      end = kNoEnd;
      if (s >= p.num_slices) continue;
      const int64_t width = has_b ? p.slices[s].width : p.max_rank;
      p.items_per_row_tile[doubled] += static_cast<int32_t>(ceil_div(width, item << doubled));
      end = p.items_per_row_tile[doubled];
    }
  }
  p.chunk_reciprocal = reciprocal(p.num_chunks);
  p.slice_reciprocal = reciprocal(p.num_slices);
  p.row_tile_reciprocal[0] = reciprocal(p.items_per_row_tile[0]);
  p.row_tile_reciprocal[1] = reciprocal(p.items_per_row_tile[1]);
  return p;
}

}  // namespace heddle
