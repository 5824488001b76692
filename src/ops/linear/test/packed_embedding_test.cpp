#include <gtest/gtest.h>

#include "compare.h"
#include "expect_error.h"
#include "ops/linear/test/linear_cases.h"
#include "ops/linear/test/linear_ref.h"
#include "poison.h"
#include "random.h"
#include "scoped_validation.h"

namespace heddle {
namespace {

using testing::PoisonedBuffer;

template <class Id>
void check_embedding(WeightType type) {
  constexpr int64_t kVocab = 37, kTokens = 21, kGap = 4;
  const int64_t width = 3 * block_size(type);
  const std::vector<std::byte> stored = random_stored(type, kVocab * width, testing::rng());
  const OwnedWeight weight(ExecContext{}, type, kVocab, width, stored);
  std::vector<Id> ids(2 * kTokens, Id{-7});  // every second one is read
  for (size_t t = 0; t < size_t{kTokens}; ++t)
    ids[2 * t] = static_cast<Id>(testing::random_int(-2, kVocab + 1));
  ids[0] = Id{-1};
  ids[2] = Id{kVocab};
  ids[4] = Id{kVocab - 1};
  if constexpr (sizeof(Id) == 8) ids[6] = Id{1} << 32;  // no token, though its lower half is one
  const ConstTensorView id_view(reinterpret_cast<const std::byte*>(ids.data()), kDType<Id>,
                                Device{}, std::vector<int64_t>{kTokens}, std::vector<int64_t>{2});
  ThreadPool threads(2);
  ExecContext ctx;
  ctx.threads = &threads;
  PoisonedBuffer<float> y(static_cast<size_t>(kTokens * (width + kGap)));
  embedding(ctx, y.view({kTokens, width + kGap}).narrow(1, 0, width), id_view, weight.view());
  for (int64_t t = 0; t < kTokens; ++t) {
    const int64_t id = ids[size_t(2 * t)];
    for (int64_t i = 0; i < width + kGap; ++i) {
      const auto at = static_cast<size_t>(t * (width + kGap) + i);
      if (i >= width) {
        ASSERT_TRUE(y.untouched(at));
        continue;
      }
      const float want =
          id < 0 || id >= kVocab ? 0.0f : ref::weight(type, stored.data(), id * width + i);
      ASSERT_EQ(std::memcmp(&y[at], &want, 4), 0)
          << type << " token " << t << " id " << id << " element " << i;
    }
  }
  EXPECT_TRUE(y.guards_intact());
}

TEST(PackedEmbedding, GivesTheStoredRowsOrZeros) {
  for (const WeightType type : kAllWeightTypes) {
    check_embedding<int32_t>(type);
    check_embedding<int64_t>(type);
  }
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
