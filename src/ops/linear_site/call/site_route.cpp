#include "ops/linear_site/call/site_route.h"

#include <ostream>

#include "ops/linear_site/call/site_call.h"
#include "ops/lora_device/plan/plan_bytes.h"

namespace heddle {
namespace {

constexpr int kMaxInsideRank = 128;

bool fits_kernels(const SiteRouteCall& call, const DeviceInfo& info) {
  return info.compute_capability >= kMinComputeCapability && call.has_vectors &&
         call.in_features > 0 && call.max_rank <= kMaxInsideRank;
}

}  // namespace

SiteRoute select_site_route(const SiteRouteCall& call, const DeviceInfo& info) {
  if (!fits_kernels(call, info)) return SiteRoute::kApart;
  if (call.path == LinearPath::kPrompt) {
    return call.has_kernels && has_grouped_plan(call.rows) ? SiteRoute::kInside : SiteRoute::kApart;
  }
  if (call.rows > kMaxLaunchRows) return SiteRoute::kApart;
  if (call.has_packed || (info.compute_capability != 90 && call.has_kernels)) {
    return call.num_slices <= kMaxLaunchSlices && call.fits_expand ? SiteRoute::kAround
                                                                   : SiteRoute::kApart;
  }
  return call.has_kernels ? SiteRoute::kInside : SiteRoute::kApart;
}

std::ostream& operator<<(std::ostream& out, SiteRoute route) {
  constexpr const char* kNames[] = {"inside", "around", "apart"};
  return out << "adapters " << kNames[static_cast<int>(route)];
}

std::ostream& operator<<(std::ostream& out, const SiteRouteCall& c) {
  return out << (c.path == LinearPath::kDecode ? "decode" : "prompt") << " slices=" << c.num_slices
             << " rows=" << c.rows << " in=" << c.in_features << " rank=" << c.max_rank
             << (c.has_packed ? " packed" : "") << (c.has_vectors ? " vectors" : "")
             << (c.has_kernels ? " kernels" : "") << (c.fits_expand ? "" : " no expand");
}

}  // namespace heddle
