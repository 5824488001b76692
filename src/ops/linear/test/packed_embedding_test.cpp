#include <gtest/gtest.h>

#include "exec_context.h"
#include "expect_error.h"
#include "ops/linear/test/packed_embedding_test_body.h"
#include "scoped_validation.h"

namespace heddle {
namespace {

TEST(PackedEmbedding, GivesTheStoredRowsOrZeros) {
  ThreadPool threads(2);
  testing::Mirror mirror;
  testing::expect_packed_embedding(testing::context_with(&threads), mirror);
}

TEST(PackedEmbedding, NamesWhatIsWrong) {
  const OwnedWeight weight(WeightType::kQ8_0, 40, 64);
  std::vector<float> y(size_t{3} * 64);
  std::vector<int32_t> ids(3);
  const auto call = [&](TensorView to, ConstTensorView id_view) {
    return testing::message_of([&] { embedding({}, to, id_view, weight.view()); });
  };
  EXPECT_EQ(call(host_view(y.data(), {3, 32}), host_view(ids.data(), {3})),
            "y.size(1) is 32, expected in_features of the weight = 64");
  EXPECT_EQ(call(host_view(y.data(), {3, 64}), host_view(ids.data(), {2})),
            "token_ids.size(0) is 2, expected num_tokens = 3");
  EXPECT_EQ(call(host_view(y.data(), {3, 64}), host_view(y.data(), {3})),
            "token_ids is f32, supported: i32, i64");
  EXPECT_EQ(call(host_view(y.data(), {0, 64}), host_view(ids.data(), {0})), "no error");
  ids[1] = 40;
  EXPECT_EQ(call(host_view(y.data(), {3, 64}), host_view(ids.data(), {3})), "no error");
  const testing::ScopedValidation on;
  EXPECT_EQ(call(host_view(y.data(), {3, 64}), host_view(ids.data(), {3})),
            "token_ids[1] is 40, expected below out_features = 40");
}

}  // namespace
}  // namespace heddle
