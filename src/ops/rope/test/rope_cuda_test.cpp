// The rotary operations on a GPU: the bodies of the CPU's tests.
#include "cuda_test.h"
#include <gtest/gtest.h>

#include "device_mirror.h"
#include "ops/rope/test/rope_test_body.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

using Guards = DeviceMirror::Guards;

class RopeCuda : public CudaTest {};

TEST_F(RopeCuda, TableIsExactToOneUlpAtAnyPosition) {
  DeviceMirror between_guards, flush(Guards::kFlush);
  for (int round = 0; round < small_or(4, 40); ++round) {
    check_rope_table(cuda_context(), round % 2 == 0 ? between_guards : flush);
  }
}

TEST_F(RopeCuda, FactorsDivideTheFrequencies) {
  DeviceMirror mirror;
  check_rope_factors(cuda_context(), mirror);
}

template <class T>
class RopeCudaTyped : public CudaTest {};
using Types = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(RopeCudaTyped, Types);

TYPED_TEST(RopeCudaTyped, RotatesInPlaceAndNothingElse) {
  DeviceMirror between_guards, flush(Guards::kFlush);
  for (int round = 0; round < small_or(12, 120); ++round) {
    check_rope<TypeParam>(this->cuda_context(), round % 2 == 0 ? between_guards : flush);
    ASSERT_FALSE(this->HasFailure()) << "round " << round;
  }
}

}  // namespace
}  // namespace heddle::testing
