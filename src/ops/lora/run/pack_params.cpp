#include "ops/lora/run/pack_params.h"

#include <algorithm>
#include <limits>

#include "core/math.h"
#include "ops/lora/device/exchange.h"
#include "ops/lora/plan/plan_bytes.h"
#include "ops/lora/run/select_grouped.h"

namespace heddle {
namespace {

using cuda::lora::FusedParams;
using cuda::lora::HalfParams;
using cuda::lora::SiteParams;

constexpr int32_t kNoEnd = std::numeric_limits<int32_t>::max();

/// The first row of the part.
template <class Byte>
Byte* first_row_of(const BasicTensorView<Byte>& t, const LoraLaunch& part) {
  return t.raw() + part.first_row * t.stride(0) * int64_t(size_of(t.dtype()));
}

const float* row_scale_of(const LoraLaunch& part) {
  const ConstTensorView& scale = part.batch.row_scale;
  return scale ? scale.data<float>() + part.first_row : nullptr;
}

const cuda::lora::WindowPlan* window_plan_of(const LoraLaunch& part) {
  const auto bytes = int64_t(windows_plan_bytes(part.first_row, part.call.max_rank));
  return reinterpret_cast<const cuda::lora::WindowPlan*>(part.plan + bytes);
}

/// Rank tiles that the plan of a window has memory for, less one.
int32_t last_tile_of(const LoraCall& call) {
  return static_cast<int32_t>(
      cuda::lora::kWindowRows * ceil_div(call.max_rank, cuda::lora::kTileRanks) - 1);
}

/// What both kinds of SiteParams have: tensors, tables and flags.
SiteParams pack_site(const LoraLaunch& part) {
  const LoraSite& site = part.site;
  SiteParams p{};
  p.input = first_row_of(site.input, part);
  p.input_stride = site.input.stride(0);
  p.input_dtype = site.input.dtype();
  p.is_input_aligned = part.call.input_vectors;
  p.in_features = part.call.input_features;
  p.num_chunks = part.call.num_chunks();
  p.max_rank = part.call.used_rank;
  p.num_slices = part.call.num_slices;
  p.y_dtype = site.slices[0].y.dtype();
  p.accumulate = site.accumulate;
  p.scale = site.scale;
  p.row_scale = row_scale_of(part);
  p.plan_tag = part.plan_tag;
  p.num_rows = static_cast<int32_t>(part.call.tokens);
  p.faults = part.faults;
  if (site.a != nullptr) {
    p.a = addresses(*site.a, site.first_slice, site.b == nullptr ? p.max_rank : kMaxLoraRank);
    p.is_transposed_a = site.a->layout == LoraLayout::kRankMinor;
  }
  if (site.b != nullptr) {
    p.b = addresses(*site.b, site.first_slice, site.a == nullptr ? p.max_rank : kMaxLoraRank);
    p.is_transposed_b = site.b->layout == LoraLayout::kRankMajor;
  }
  for (size_t s = 0; s < site.slices.size(); ++s) {
    const TensorView& y = site.slices[s].y;
    p.slices[s].y = first_row_of(y, part);
    p.slices[s].y_stride = y.stride(0);
    p.slices[s].width = static_cast<int32_t>(y.size(1));
  }
  return p;
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

cuda::lora::WeightAddresses addresses(const LoraTable& table, int first_slice, int64_t rank_limit) {
  using Addresses = cuda::lora::WeightAddresses;
  const auto element = int64_t(size_of(table.dtype));
  Addresses a{};
  a.max_rank = static_cast<int32_t>(std::min<int64_t>(table.max_rank, rank_limit));
  if (table.entries != nullptr) {
    a.kind = Addresses::kEntries;
    a.base = reinterpret_cast<const std::byte*>(table.entries + first_slice);
    a.slot_stride = table.num_slices;
    return a;
  }
  a.offset = table.element_offset * element;
  a.row_stride = table.row_stride;
  if (table.pointers != nullptr) {
    a.kind = Addresses::kPointers;
    a.base = reinterpret_cast<const std::byte*>(table.pointers);
    a.slot_stride = table.pointer_stride;
  } else {
    a.kind = Addresses::kStack;
    a.base = table.stack;
    a.slot_stride = table.slot_stride * element;
  }
  return a;
}

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

HalfParams pack_two_launches(const LoraLaunch& part) {
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
