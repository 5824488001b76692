#include "engine/page_pool.h"

#include <set>

#include <gtest/gtest.h>

#include "random.h"

namespace heddle {
namespace {

TEST(PagePool, GivesEveryPageOnceThenNothing) {
  PagePool pool(2);
  const auto a = pool.acquire(), b = pool.acquire();
  ASSERT_TRUE(a && b);
  EXPECT_NE(*a, *b);
  EXPECT_EQ(pool.acquire(), std::nullopt);
  EXPECT_EQ(pool.num_free(), 0);
}

TEST(PagePool, NeverGivesAPageThatIsInUse) {
  PagePool pool(50);
  std::set<PageId> in_use;
  for (int round = 0; round < 10000; ++round) {
    if (testing::random_int(0, 1) == 0) {
      if (const auto page = pool.acquire()) {
        EXPECT_TRUE(in_use.insert(*page).second);
      } else {
        EXPECT_EQ(in_use.size(), 50u);
      }
    } else if (!in_use.empty()) {
      pool.release(*in_use.begin());
      in_use.erase(in_use.begin());
    }
    EXPECT_EQ(pool.num_free(), 50 - static_cast<int64_t>(in_use.size()));
  }
}

TEST(PagePool, ReusesThePageThatWasReleasedLast) {
  PagePool pool(10);
  const auto a = pool.acquire();
  (void)pool.acquire();
  pool.release(*a);
  EXPECT_EQ(pool.acquire(), a);
}

}  // namespace
}  // namespace heddle
