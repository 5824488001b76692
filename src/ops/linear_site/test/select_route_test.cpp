// Where the adapters of a site are added, decided without a GPU.
#include <sstream>

#include <gtest/gtest.h>

#include "ops/linear_site/call/site_route.h"

namespace heddle {
namespace {

constexpr DeviceInfo kH100{90, 132}, kA100{80, 108};

/// One slice, 8 rows and rank 16, of which kernels of 9.0 take everything.
SiteRouteCall call_of(LinearPath path, int64_t rows = 8) {
  return {.path = path,
          .rows = rows,
          .in_features = 4096,
          .max_rank = 16,
          .has_vectors = true,
          .has_kernels = true};
}

SiteRouteCall packed_call(int64_t rows = 8) {
  SiteRouteCall call = call_of(LinearPath::kDecode, rows);
  call.has_packed = true;
  call.has_kernels = false;
  return call;
}

TEST(SelectSiteRoute, FewRowsOfDenseWeightsTakeAdaptersInside) {
  for (const int64_t rows : {1, 8, 64, 128}) {
    EXPECT_EQ(select_site_route(call_of(LinearPath::kDecode, rows), kH100), SiteRoute::kInside);
  }
  EXPECT_EQ(select_site_route(call_of(LinearPath::kDecode, 129), kH100), SiteRoute::kApart);
  SiteRouteCall call = call_of(LinearPath::kDecode);
  call.num_slices = 9;
  EXPECT_EQ(select_site_route(call, kH100), SiteRoute::kInside);
  call.has_kernels = false;
  EXPECT_EQ(select_site_route(call, kH100), SiteRoute::kApart);
}

TEST(SelectSiteRoute, FewRowsOfPackedWeightsTakeAdaptersAround) {
  EXPECT_EQ(select_site_route(packed_call(), kH100), SiteRoute::kAround);
  EXPECT_EQ(select_site_route(packed_call(128), kH100), SiteRoute::kAround);
  EXPECT_EQ(select_site_route(packed_call(129), kH100), SiteRoute::kApart);
  SiteRouteCall call = packed_call();
  call.num_slices = 4;
  EXPECT_EQ(select_site_route(call, kH100), SiteRoute::kAround);
  call.num_slices = 5;
  EXPECT_EQ(select_site_route(call, kH100), SiteRoute::kApart);
}

TEST(SelectSiteRoute, PromptsTakeAdaptersInsideWhereThePlanGroupsAllRows) {
  const auto route = [](int64_t rows, int max_rank, bool is_packed) {
    SiteRouteCall call = call_of(LinearPath::kPrompt, rows);
    call.max_rank = max_rank;
    call.has_packed = is_packed;
    return select_site_route(call, kH100);
  };
  for (const bool is_packed : {false, true}) {
    EXPECT_EQ(route(127, 65, is_packed), SiteRoute::kApart);
    EXPECT_EQ(route(128, 16, is_packed), SiteRoute::kInside);
    EXPECT_EQ(route(65536, 128, is_packed), SiteRoute::kInside);
  }
}

TEST(SelectSiteRoute, WhatKernelsDoNotTakeGoesApart) {
  for (const SiteRouteCall& fits :
       {call_of(LinearPath::kDecode), packed_call(), call_of(LinearPath::kPrompt, 512)}) {
    SiteRouteCall call = fits;
    call.max_rank = 129;
    EXPECT_EQ(select_site_route(call, kH100), SiteRoute::kApart);
    call = fits;
    call.has_vectors = false;
    EXPECT_EQ(select_site_route(call, kH100), SiteRoute::kApart);
    call = fits;
    call.in_features = 0;
    EXPECT_EQ(select_site_route(call, kH100), SiteRoute::kApart);
  }
}

TEST(SelectSiteRoute, OtherChipsTakeFewRowsAroundAndPromptsInside) {
  for (const DeviceInfo& info : {kA100, DeviceInfo{89, 128}, DeviceInfo{100, 148}}) {
    for (const SiteRouteCall& few : {call_of(LinearPath::kDecode), packed_call()}) {
      EXPECT_EQ(select_site_route(few, info), SiteRoute::kAround);
      SiteRouteCall call = few;
      call.fits_expand = false;
      EXPECT_EQ(select_site_route(call, info), SiteRoute::kApart);
      call = few;
      call.num_slices = 5;
      EXPECT_EQ(select_site_route(call, info), SiteRoute::kApart);
    }
    EXPECT_EQ(select_site_route(call_of(LinearPath::kPrompt, 512), info), SiteRoute::kInside);
    SiteRouteCall call = call_of(LinearPath::kPrompt, 512);
    call.has_kernels = false;
    EXPECT_EQ(select_site_route(call, info), SiteRoute::kApart);
  }
}

TEST(SelectSiteRoute, PrintsItself) {
  std::ostringstream out;
  out << SiteRoute::kAround << ' ' << packed_call(32);
  EXPECT_EQ(out.str(), "adapters around decode slices=1 rows=32 in=4096 rank=16 packed vectors");
}

}  // namespace
}  // namespace heddle
