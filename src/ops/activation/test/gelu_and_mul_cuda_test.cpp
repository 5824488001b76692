// gelu_and_mul on a GPU: the body of the CPU's test, and what only a GPU can do wrong.
#include <cmath>
#include <limits>
#include <vector>

#include "cuda_test.h"
#include <gtest/gtest.h>

#include "device_buffer.h"
#include "device_mirror.h"
#include "ops/activation/test/gelu_and_mul_test_body.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

template <class T>
class GeluAndMulCuda : public CudaTest {};
using Types = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(GeluAndMulCuda, Types);

TYPED_TEST(GeluAndMulCuda, EqualsTheDefinition) {
  DeviceMirror between_guards, flush(DeviceMirror::Guards::kFlush);
  for (int round = 0; round < small_or(20, 200); ++round) {
    check_gated<TypeParam>(this->cuda_context(), round % 2 == 0 ? between_guards : flush,
                           gelu_op(round / 2 % 2 == 0 ? GeluForm::kErf : GeluForm::kTanh));
    ASSERT_FALSE(this->HasFailure()) << "round " << round;
  }
}

class GeluAndMulCudaValues : public CudaTest {};

TEST_F(GeluAndMulCudaValues, AreFiniteWhereverTheLimitIs) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> gates{0.0f, -kInfinity, -3e38f, -40.0f, kInfinity, 3e38f, NAN, 1.0f};
  const DeviceBuffer<float> gate(gates), up(std::vector<float>{1, 1, 1, 1, 1, 1, 1, NAN});
  for (const GeluForm form : {GeluForm::kErf, GeluForm::kTanh}) {
    const DeviceBuffer<float> y(8);
    gelu_and_mul(cuda_context(), y.view({1, 8}), gate.view({1, 8}), up.view({1, 8}), form);
    const std::vector<float> got = y.download();
    for (const size_t i : {0, 1, 2, 3}) EXPECT_EQ(got[i], 0.0f) << gates[i];
    EXPECT_EQ(got[4], kInfinity);
    EXPECT_NEAR(got[5] / 3e38f, 1.0f, 1e-6f);
    EXPECT_TRUE(std::isnan(got[6]) && std::isnan(got[7]));
  }
}

}  // namespace
}  // namespace heddle::testing
