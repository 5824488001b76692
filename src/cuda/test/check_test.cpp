#include "cuda/check.h"

#include <gtest/gtest.h>

#include "expect_error.h"

namespace heddle {
namespace {

TEST(CudaCheck, NamesExpressionErrorAndText) {
  const auto refuse = [](int, int) { return cudaErrorInvalidValue; };
  testing::expect_error(ErrorCode::kCuda,
                        {"refuse(1, 2): cudaErrorInvalidValue (invalid argument)"},
                        [&] { HEDDLE_CUDA_CHECK(refuse(1, 2)); });
}

TEST(CudaCheck, LackOfMemoryHasItsOwnCode) {
  testing::expect_error(ErrorCode::kOutOfMemory, {"cudaErrorMemoryAllocation"},
                        [] { HEDDLE_CUDA_CHECK(cudaErrorMemoryAllocation); });
}

TEST(CudaCheck, SuccessPassesAndIsEvaluatedOnce) {
  int calls = 0;
  const auto succeed = [&] { return ++calls, cudaSuccess; };
  EXPECT_NO_THROW(HEDDLE_CUDA_CHECK(succeed()));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace heddle
