#include "cuda/check.h"

#include <string>

#include <gtest/gtest.h>

#include "heddle/core/error.h"

#include "core/scoped_operation.h"
#include "expect_error.h"

namespace heddle {
namespace {

TEST(CudaCheck, NamesExpressionErrorAndText) {
  const auto refuse = [](int, int) { return cudaErrorInvalidValue; };
  testing::expect_error(ErrorCode::kCuda,
                        {"refuse(1, 2): cudaErrorInvalidValue (invalid argument)"},
                        [&] { HEDDLE_CUDA_CHECK(refuse(1, 2)); });
}

TEST(CudaCheck, NamesTheOperationOfTheCall) {
  const ScopedOperation outer("outer");
  const auto refuse = [] { HEDDLE_CUDA_CHECK(cudaErrorInvalidValue); };
  {
    const ScopedOperation inner("inner");
    testing::expect_error(ErrorCode::kCuda, {"inner: cudaErrorInvalidValue: "}, refuse);
  }
  testing::expect_error(ErrorCode::kCuda, {"outer: cudaErrorInvalidValue: "}, refuse);
}

TEST(CudaCheck, DoesNotBlameACallForAKernelThatFailedBefore) {
  const ScopedOperation operation("innocent");
  try {
    HEDDLE_CUDA_CHECK(cudaErrorIllegalAddress);
    FAIL();
  } catch (const Error& error) {
    const std::string sentence = error.what();
    EXPECT_EQ(sentence.find("innocent"), std::string::npos) << sentence;
    EXPECT_TRUE(
        sentence.ends_with("; an operation before this call has failed, "
                           "CUDA_LAUNCH_BLOCKING=1 tells which"))
        << sentence;
  }
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
