#include "heddle/ops/activation.h"

#include <gtest/gtest.h>

#include "heddle/c_api.h"

#include "capi/test/capi_cuda_test_body.h"
#include "compare.h"
#include "device_buffer.h"
#include "random.h"

namespace heddle::testing {
namespace {

TEST_F(CApiCuda, SiluAndMul) {
  const DeviceBuffer<half> gate(random_normal<half>(2 * 40)), up(random_normal<half>(2 * 40));
  const DeviceBuffer<half> got(2 * 40), want(2 * 40);
  const OnDevice y(got, {2, 40}), g(gate, {2, 40}), u(up, {2, 40});
  expect_ok(heddle_silu_and_mul(context_, y.get(), g.get(), u.get()));
  silu_and_mul(cuda_context(), want.view({2, 40}), gate.view({2, 40}), up.view({2, 40}));
  EXPECT_TRUE(same_bits<half>(got.download(), want.download()));
  EXPECT_TRUE(got.guards_intact());
}

TEST_F(CApiCuda, GeluAndMul) {
  const DeviceBuffer<bfloat16> gate(random_normal<bfloat16>(2 * 40));
  const DeviceBuffer<bfloat16> up(random_normal<bfloat16>(2 * 40)), got(2 * 40), want(2 * 40);
  const OnDevice y(got, {2, 40}), g(gate, {2, 40}), u(up, {2, 40});
  expect_ok(heddle_gelu_and_mul(context_, y.get(), g.get(), u.get(), HEDDLE_GELU_TANH));
  gelu_and_mul(cuda_context(), want.view({2, 40}), gate.view({2, 40}), up.view({2, 40}),
               GeluForm::kTanh);
  EXPECT_TRUE(same_bits<bfloat16>(got.download(), want.download()));
  EXPECT_TRUE(got.guards_intact());
}

}  // namespace
}  // namespace heddle::testing
