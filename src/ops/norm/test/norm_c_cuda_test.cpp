#include "heddle/ops/norm.h"

#include <vector>

#include <gtest/gtest.h>

#include "heddle/c_api.h"

#include "capi/test/capi_cuda_test_body.h"
#include "compare.h"
#include "device_buffer.h"
#include "random.h"

namespace heddle::testing {
namespace {

TEST_F(CApiCuda, RmsNorm) {
  const DeviceBuffer<half> x(random_normal<half>(2 * 40)), weight(random_normal<half>(40));
  const DeviceBuffer<half> got(2 * 40), want(2 * 40);
  const OnDevice y(got, {2, 40}), in(x, {2, 40}), w(weight, {40});
  expect_ok(heddle_rms_norm(context_, y.get(), in.get(), w.get(), nullptr));
  rms_norm(cuda_context(), want.view({2, 40}), x.view({2, 40}), weight.view({40}));
  EXPECT_TRUE(same_bits<half>(got.download(), want.download()));

  const std::vector<half> start = random_normal<half>(2 * 40);
  const DeviceBuffer<half> sum(start), same_sum(start);
  const DeviceBuffer<float8_e4m3> got8(2 * 40), want8(2 * 40);
  const DeviceBuffer<float> scales(2), want_scales(2);
  const OnDevice y8(got8, {2, 40}), residual(sum, {2, 40}), row_scales(scales, {2});
  heddle_rms_norm_options options;
  heddle_rms_norm_options_init(&options);
  options.row_scales = row_scales.get();
  expect_ok(
      heddle_fused_add_rms_norm(context_, y8.get(), residual.get(), in.get(), w.get(), &options));
  RmsNormOptions per_row;
  per_row.output_scale.per_row = want_scales.view({2});
  fused_add_rms_norm(cuda_context(), want8.view({2, 40}), same_sum.view({2, 40}), x.view({2, 40}),
                     weight.view({40}), per_row);
  EXPECT_TRUE(same_bits<half>(sum.download(), same_sum.download()));
  EXPECT_TRUE(same_bits<float8_e4m3>(got8.download(), want8.download()));
  EXPECT_TRUE(same_bits<float>(scales.download(), want_scales.download()));
  EXPECT_TRUE(got8.guards_intact() && scales.guards_intact() && sum.guards_intact());
}

}  // namespace
}  // namespace heddle::testing
