#include "cuda_test.h"

#include "device_mirror.h"
#include "ops/sampling/test/mask_logits_test_body.h"

namespace heddle {
namespace {

class MaskLogitsCuda : public testing::CudaTest {};

TEST_F(MaskLogitsCuda, LeavesWhatMayBeDrawn) {
  for (const auto guards :
       {testing::DeviceMirror::Guards::kBoth, testing::DeviceMirror::Guards::kFlush}) {
    testing::DeviceMirror device(guards);
    testing::check_mask_logits(cuda_context(), device);
  }
}

}  // namespace
}  // namespace heddle
