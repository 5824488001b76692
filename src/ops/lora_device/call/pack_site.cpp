#include "ops/lora_device/call/pack_site.h"

#include <algorithm>

namespace heddle {

using cuda::lora::SiteParams;

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

}  // namespace heddle
