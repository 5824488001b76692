#include "cuda_test.h"

#include "device_mirror.h"
#include "ops/sampling/test/take_drawn_tokens_test_body.h"

namespace heddle {
namespace {

class TakeDrawnTokensCuda : public testing::CudaTest {};

TEST_F(TakeDrawnTokensCuda, ReplacesThoseWithASource) {
  for (const auto guards :
       {testing::DeviceMirror::Guards::kBoth, testing::DeviceMirror::Guards::kFlush}) {
    testing::DeviceMirror device(guards);
    for (const int64_t num_tokens : {0, 1, 7, 300}) {
      testing::check_take_drawn_tokens(cuda_context(), device, num_tokens);
    }
  }
}

}  // namespace
}  // namespace heddle
