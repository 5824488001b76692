#include "expect_error.h"
#include "ops/sampling/test/mask_logits_test_body.h"

namespace heddle {
namespace {

TEST(MaskLogits, LeavesWhatMayBeDrawn) {
  testing::Mirror here;
  testing::check_mask_logits({}, here);
}

TEST(MaskLogits, NamesWhatIsWrong) {
  std::vector<float> logits(66);
  std::vector<int32_t> ints(8);
  const TensorView rows = host_view(logits.data(), {2, 33});
  const TensorView indices = host_view(ints.data(), {2});
  const auto message = [&](const TensorView& masks) {
    return testing::message_of([&] { mask_logits({}, rows, rows, indices, masks); });
  };
  EXPECT_EQ(message(host_view(ints.data(), {2, 1})),
            "masks.size(1) is 1, expected ceil(vocab_size / 32) = 2");
  EXPECT_EQ(message(host_view(logits.data(), {2, 2})), "masks is f32, supported: i32");
}

}  // namespace
}  // namespace heddle
