// Packed weights on a GPU through the C interface: the bits of C++.
#include "heddle/ops/linear_site.h"

#include <vector>

#include <gtest/gtest.h>

#include "heddle/c_linear_site.h"
#include "heddle/core/cuda_context.h"

#include "capi/test/capi_cuda_test_body.h"
#include "capi/test/packed_bytes.h"

namespace heddle::testing {
namespace {

constexpr int64_t kTokens = 9, kIn = 256, kOut = 40, kDenseOut = 24;

/// A packed weight and a dense one, on the device.
struct PackedSite {
  PackedBytes host{WeightType::kQ4_1, kOut, kIn};
  DeviceBuffer<uint8_t> packed{std::span<const uint8_t>(host.data(), host.size())};
  DeviceBuffer<bfloat16> x{random_normal<bfloat16>(kTokens * kIn)};
  DeviceBuffer<bfloat16> dense{random_normal<bfloat16>(kDenseOut * kIn)};
  OnDevice c_data{packed, {int64_t(packed.size())}};
  heddle_packed_weight c_weight{HEDDLE_Q4_1, kOut, kIn, c_data.get()};

  [[nodiscard]] PackedWeight weight() const {
    return {WeightType::kQ4_1, kOut, kIn, reinterpret_cast<const std::byte*>(packed.data())};
  }
};

TEST_F(CApiCuda, LinearSiteTakesPackedWeights) {
  const PackedSite site;
  const DeviceBuffer<float> y0(kTokens * kOut), y1(kTokens * kDenseOut), want0(kTokens * kOut),
      want1(kTokens * kDenseOut);
  CudaContext context(Device{DeviceType::kCuda, current_device()}, nullptr, size_t{8} << 20);
  const OnDevice x(site.x, {kTokens, kIn}), dense(site.dense, {kDenseOut, kIn}),
      to0(y0, {kTokens, kOut}), to1(y1, {kTokens, kDenseOut});
  for (const LinearPath path : {LinearPath::kDecode, LinearPath::kPrompt}) {
    const LinearSlice slices[] = {
        {.y = want0.view({kTokens, kOut}), .packed = site.weight()},
        {.y = want1.view({kTokens, kDenseOut}), .weight = site.dense.view({kDenseOut, kIn})}};
    linear_site(context.exec(), slices, site.x.view({kTokens, kIn}), path);
    const heddle_linear_slice given[] = {{to0.get(), nullptr, nullptr, &site.c_weight},
                                         {to1.get(), dense.get(), nullptr, nullptr}};
    expect_ok(heddle_linear_site(context_, given, 2, x.get(), heddle_linear_path(path), nullptr,
                                 nullptr, nullptr));
    EXPECT_TRUE(same_bits<float>(y0.download(), want0.download()));
    EXPECT_TRUE(same_bits<float>(y1.download(), want1.download()));
  }
}

TEST_F(CApiCuda, PackedWeightsLieOnTheContextsDevice) {
  PackedSite site;
  const DeviceBuffer<float> y(kTokens * kOut);
  const OnDevice x(site.x, {kTokens, kIn}), to(y, {kTokens, kOut});
  const CTensor on_host(site.host.data(), {int64_t(site.host.size())});
  site.c_weight.data = on_host.get();
  const heddle_linear_slice slice{to.get(), nullptr, nullptr, &site.c_weight};
  expect_failure(HEDDLE_INVALID_ARGUMENT, "slices[0].packed.data is on cpu, the context runs on",
                 heddle_linear_site(context_, &slice, 1, x.get(), HEDDLE_LINEAR_DECODE, nullptr,
                                    nullptr, nullptr));
}

TEST_F(CApiCuda, PackedEmbedding) {
  const PackedSite site;
  const DeviceBuffer<float> y(3 * kIn), want(3 * kIn);
  const DeviceBuffer<int64_t> ids(std::vector<int64_t>{kOut - 1, 0, 17});
  CudaContext context(Device{DeviceType::kCuda, current_device()}, nullptr, size_t{1} << 20);
  embedding(context.exec(), want.view({3, kIn}), ids.view({3}), site.weight());
  const OnDevice to(y, {3, kIn}), rows(ids, {3});
  expect_ok(heddle_packed_embedding(context_, to.get(), rows.get(), &site.c_weight));
  EXPECT_TRUE(same_bits<float>(y.download(), want.download()));
}

}  // namespace
}  // namespace heddle::testing
