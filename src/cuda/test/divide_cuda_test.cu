#include <algorithm>
#include <cstdint>
#include <vector>

#include "cuda/check.h"
#include "cuda/divide_cuda.h"
#include "cuda_test.h"
#include <gtest/gtest.h>

#include "core/math.h"
#include "device_buffer.h"
#include "random.h"

namespace heddle::testing {
namespace {

// quotients[i] = n[i] / d[i]; one thread a quotient.
__global__ void divide_kernel(const uint32_t* n, const uint32_t* d, uint32_t* quotients,
                              int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) quotients[i] = cuda::divide_small(n[i], d[i]);
}

class DivideCuda : public CudaTest {};

TEST_F(DivideCuda, SmallQuotientsAreExact) {
  constexpr int64_t kMax = (int64_t{1} << 31) - 1, kMaxQuotient = (int64_t{1} << 20) - 1;
  std::vector<uint32_t> n, d;
  for (int i = 0; i < 20000; ++i) {
    const int64_t divisor = random_int(1, i % 2 == 0 ? kMax : 5000);
    const int64_t multiple = random_int(0, std::min(kMaxQuotient, kMax / divisor)) * divisor;
    for (const int64_t x : {multiple, multiple + divisor - 1}) {
      n.push_back(static_cast<uint32_t>(x));
      d.push_back(static_cast<uint32_t>(divisor));
    }
  }
  const int count = static_cast<int>(n.size());
  DeviceBuffer<uint32_t> on_device_n(n), on_device_d(d), quotients(n.size());
  divide_kernel<<<ceil_div(count, 256), 256>>>(on_device_n.data(), on_device_d.data(),
                                               quotients.data(), count);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
  const std::vector<uint32_t> result = quotients.download();
  for (int i = 0; i < count; ++i) {
    EXPECT_EQ(result[i], n[i] / d[i]) << n[i] << " / " << d[i];
  }
}

}  // namespace
}  // namespace heddle::testing
