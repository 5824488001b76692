#pragma once

#include <cstdint>
#include <iosfwd>

#include "heddle/core/device.h"
#include "heddle/ops/linear_site.h"

namespace heddle {

/// Where the adapters of a site are added. All routes have the same bits.
enum class SiteRoute : uint8_t {
  kInside,  // in the launches of the products, after one of A x
  kAround,  // A x, the products in f32, then B h and the rounding in one launch; kDecode alone
  kApart,   // the products in f32, lora_apply to them, then the rounding
};
std::ostream& operator<<(std::ostream& out, SiteRoute route);

/// A whole site with adapters, in numbers.
struct SiteRouteCall {
  LinearPath path = LinearPath::kDecode;
  int num_slices = 1;
  int64_t rows = 1, in_features = 0;
  int max_rank = 0;         // of the tables
  bool has_packed = false;  // any slice's weights
  bool has_vectors =
      false;  // one adapter for each row, in tables that are loaded 16 bytes at a time
  bool has_kernels = false;  // each launch of dense products has a kernel that is not the general
                             // one; few rows on 9.0: that takes adapters of this rank
  bool fits_expand = true;   // B h after the products, in a block's shared memory
  friend std::ostream& operator<<(std::ostream& out, const SiteRouteCall& call);
};

/// The route of a call. It depends neither on the adapters of the rows nor on what a slot holds.
[[nodiscard]] SiteRoute select_site_route(const SiteRouteCall& call, const DeviceInfo& info);

}  // namespace heddle
