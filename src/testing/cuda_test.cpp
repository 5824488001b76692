#include "cuda_test.h"

#include <cstdlib>
#include <string_view>

#include <cuda_runtime_api.h>

#include "device_memory.h"

namespace heddle::testing {

void CudaTest::SetUp() {
  if (has_cuda()) return;
  const char* required = std::getenv("HEDDLE_REQUIRE_CUDA");
  if (required != nullptr && std::string_view(required) == "1") {
    FAIL() << "HEDDLE_REQUIRE_CUDA=1, but there is no CUDA device";
  }
  GTEST_SKIP() << "no CUDA device";
}

void CudaTest::TearDown() {
  if (!has_cuda()) return;
  EXPECT_STREQ(cudaGetErrorName(cudaDeviceSynchronize()), "cudaSuccess");
  EXPECT_STREQ(cudaGetErrorName(cudaGetLastError()), "cudaSuccess");
}

ExecContext CudaTest::cuda_context(cudaStream_t stream) const {
  ExecContext ctx;
  ctx.device = {DeviceType::kCuda, current_device()};
  ctx.info = query_device(ctx.device);
  ctx.stream = stream;
  return ctx;
}

}  // namespace heddle::testing
