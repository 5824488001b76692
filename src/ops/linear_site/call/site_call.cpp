#include "ops/linear_site/call/site_call.h"

#include <algorithm>

#include "ops/linear_site/call/site_slices.h"

namespace heddle {
namespace {

constexpr int kVectorBytes = 16;

}  // namespace

bool has_vectors(const ConstTensorView& rows) {
  const auto bits =
      reinterpret_cast<uintptr_t>(rows.raw()) | uintptr_t(rows.stride(0)) * size_of(rows.dtype());
  return bits % kVectorBytes == 0 && (rows.size(0) <= 1 || rows.stride(0) >= rows.size(1));
}

SiteCall describe(std::span<const LinearSlice> slices, int64_t rows, int64_t num_outputs) {
  SiteCall call;
  call.num_slices = static_cast<int>(slices.size());
  call.rows = rows;
  call.in_features = is_packed(slices[0]) ? slices[0].packed.in_features : slices[0].weight.size(1);
  call.num_outputs = num_outputs;
  call.fits_tensor_maps = call.in_features > 0;
  for (size_t s = 0; s < slices.size(); ++s) {
    const LinearSlice& slice = slices[s];
    call.widths[s] = slice.y.size(1);
    call.fits_tensor_maps &= is_packed(slice) || slice.y.size(1) == 0 || has_vectors(slice.weight);
  }
  return call;
}

bool have_vectors(const LinearAdapters& adapters, int64_t in_features) {
  const LoraTable &a = adapters.a, &b = adapters.b;
  const auto fits = [](const LoraTable& table, LoraLayout layout) {
    return table.entries != nullptr && table.is_aligned && table.layout == layout;
  };
  return !adapters.batch.pair_starts && fits(a, LoraLayout::kRankMajor) &&
         fits(b, LoraLayout::kRankMinor) && a.max_rank == b.max_rank && in_features % 8 == 0;
}

}  // namespace heddle
