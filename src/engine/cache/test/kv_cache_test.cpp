#include "engine/cache/kv_cache.h"

#include <gtest/gtest.h>

#include "expect_error.h"

namespace heddle {
namespace {

// 2 layers of keys and values of 3 heads, 5 tokens, 8 elements of 4 bytes.
constexpr KvCache::Shape kShape{.num_layers = 2, .num_kv_heads = 3, .page_size = 5, .head_dim = 8};
constexpr int64_t kPageBytes = 2 * 2 * 3 * 5 * 8 * 4;

TEST(ChooseNumPages, TakesWhatTheBudgetHolds) {
  EXPECT_EQ(kShape.page_bytes(), kPageBytes);
  KvCache::Shape half_as_large = kShape;
  half_as_large.dtype = DType::kBFloat16;
  EXPECT_EQ(half_as_large.page_bytes(), kPageBytes / 2);
  KvCache::Shape codes = kShape;
  codes.dtype = DType::kFloat8E4M3;
  EXPECT_EQ(codes.page_bytes(), kPageBytes / 4 + 2 * 2 * 3 * 5 * 4) << "a scale of 4 bytes a head";
  EXPECT_EQ(choose_num_pages(kPageBytes, 0, kShape, 100), 1);
  EXPECT_EQ(choose_num_pages(8 * kPageBytes - 1, 0, kShape, 100), 7);
  EXPECT_EQ(choose_num_pages(8 * kPageBytes, 0, kShape, 100), 8);
  EXPECT_EQ(choose_num_pages(INT64_MAX, 0, kShape, 100), 100) << "no more than can be of use";
  testing::expect_invalid({"kv_memory is 1919 bytes", "page of 5 tokens", "1920"},
                          [] { (void)choose_num_pages(kPageBytes - 1, 0, kShape, 100); });
}

TEST(ChooseNumPages, TakesHalfOfWhatIsAvailableUnlessTold) {
  EXPECT_EQ(choose_num_pages(0, 20 * kPageBytes, kShape, 100), 10);
  EXPECT_EQ(choose_num_pages(0, INT64_MAX, kShape, 100), 100);
  EXPECT_EQ(choose_num_pages(0, 0, kShape, 100), 1);
}

}  // namespace
}  // namespace heddle
