#include "cuda_test.h"

#include "device_mirror.h"
#include "ops/sampling/test/adjust_test_body.h"

namespace heddle {
namespace {

class AdjustLogitsCuda : public testing::CudaTest {};

/// The bits of the CPU, whose test has the same body.
TEST_F(AdjustLogitsCuda, IsTheDefinition) {
  for (const auto guards :
       {testing::DeviceMirror::Guards::kBoth, testing::DeviceMirror::Guards::kFlush}) {
    testing::DeviceMirror device(guards);
    for (const int64_t vocab_size : {1, 17, 3000}) {
      expect_adjusts(cuda_context(), device, testing::random_int(0, 40), vocab_size);
    }
  }
}

}  // namespace
}  // namespace heddle
