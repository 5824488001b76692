#include "expect_error.h"
#include "ops/sampling/test/take_drawn_tokens_test_body.h"

namespace heddle {
namespace {

TEST(TakeDrawnTokens, ReplacesThoseWithASource) {
  testing::Mirror here;
  for (const int64_t num_tokens : {0, 1, 7, 300}) {
    testing::check_take_drawn_tokens({}, here, num_tokens);
  }
}

TEST(TakeDrawnTokens, NamesWhatIsWrong) {
  std::vector<int32_t> ids(4);
  std::vector<int64_t> wide(4);
  const TensorView four = host_view(ids.data(), {4});
  EXPECT_EQ(testing::message_of([&] { take_drawn_tokens({}, four, four, four.narrow(0, 0, 3)); }),
            "sources.size(0) is 3, expected num_tokens = 4");
  EXPECT_EQ(
      testing::message_of([&] { take_drawn_tokens({}, four, host_view(wide.data(), {4}), four); }),
      "drawn is i64, supported: i32");
}

}  // namespace
}  // namespace heddle
