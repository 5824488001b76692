#include "model/config/block_shape.h"

#include <algorithm>
#include <iterator>

#include "heddle/core/error.h"

namespace heddle::model {

const LinearModule* find_linear_module(std::string_view name) {
  const auto* const found = std::ranges::find(kLinearModules, name, &LinearModule::name);
  return found == std::end(kLinearModules) ? nullptr : found;
}

int BlockShape::site_of(int slice) const {
  int index = 0;
  while (slice >= site(index).first + site(index).count) ++index;
  return index;
}

LinearDims BlockShape::dims_of(SliceRange range) const {
  LinearDims dims = slice(range.first).dims;
  for (int i = 1; i < range.count; ++i) dims.out += slice(range.first + i).dims.out;
  return dims;
}

SliceRange BlockShape::find(const LinearModule& module) const {
  for (const BlockSite& site : sites) {
    if (site.fused == &module) return {site.first, site.count};
  }
  const auto found = std::ranges::find(slices, &module, &BlockSlice::module);
  HEDDLE_CHECK(found != slices.end(), "the model's blocks have no ", module.name);
  return {static_cast<int>(found - slices.begin()), 1};
}

std::vector<StoredLinear> BlockShape::stored() const {
  std::vector<StoredLinear> all;
  for (const BlockSite& site : sites) {
    if (site.is_fused) {
      all.push_back({site.fused, {site.first, site.count}});
      continue;
    }
    for (int i = site.first; i < site.first + site.count; ++i) {
      all.push_back({slice(i).module, {i, 1}});
    }
  }
  return all;
}

}  // namespace heddle::model
