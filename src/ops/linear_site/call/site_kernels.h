#pragma once

#include <optional>
#include <span>

#include "heddle/ops/linear_site.h"

#include "ops/linear_site/call/site_route.h"

namespace heddle {

namespace cpu::linear_site {
/// Arguments are checked.
void run(const ExecContext& ctx, std::span<const LinearSlice> slices, const ConstTensorView& x,
         const LinearAdapters* adapters);
[[nodiscard]] size_t workspace_bytes(int64_t num_tokens, int64_t in_features, int64_t out_features,
                                     int num_slices);
}  // namespace cpu::linear_site

namespace cuda::linear_site {
/// What tests set.
struct Options {
  std::optional<SiteRoute> route = {};  // in place of the selected one, unless that is kApart
  SiteRoute* taken = nullptr;           // set to the route of a call with adapters
};
void run(const ExecContext& ctx, std::span<const LinearSlice> slices, const ConstTensorView& x,
         LinearPath path, const LinearAdapters* adapters, const Options& options = {});
[[nodiscard]] size_t workspace_bytes(int64_t num_tokens, int64_t in_features, int64_t out_features,
                                     int num_slices, int max_rank);
}  // namespace cuda::linear_site

}  // namespace heddle
