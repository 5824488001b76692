#include "engine/cache/page_pool.h"

#include <algorithm>
#include <list>
#include <set>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "heap_count.h"
#include "random.h"

namespace heddle {
namespace {

TEST(PagePool, GivesEveryPageOnceThenNothing) {
  PagePool pool(3);
  std::optional<ReservedPages> row = pool.reserve(2);
  ASSERT_TRUE(row);
  EXPECT_EQ(pool.num_free(), 1) << "reserved, not allocated yet";
  EXPECT_FALSE(pool.reserve(2));
  EXPECT_EQ(pool.num_free(), 1);
  row->grow_to(2);
  ASSERT_EQ(row->ids().size(), 2u);
  EXPECT_NE(row->ids()[0], row->ids()[1]);
  testing::expect_invalid({"needs 3", "for 2"}, [&] { row->grow_to(3); });
  EXPECT_EQ(row->ids().size(), 2u);
}

/// Rows of random lengths that grow and end; assigned and moved as the rows of an engine are.
TEST(PagePool, NeverGivesAPageThatIsInUse) {
  constexpr int64_t kNumPages = 50;
  PagePool pool(kNumPages);
  struct Row {
    ReservedPages pages;
    int64_t reserved;
  };
  std::list<Row> rows;
  for (int round = 0; round < 10000; ++round) {
    const int64_t wanted = testing::random_int(0, 20);
    int64_t reserved = 0;
    for (const Row& row : rows) reserved += row.reserved;
    ASSERT_EQ(pool.num_free(), kNumPages - reserved);
    if (std::optional<ReservedPages> pages = pool.reserve(wanted)) {
      EXPECT_LE(wanted, kNumPages - reserved);
      rows.emplace_back();
      rows.back() = {std::move(*pages), wanted};
    } else {
      EXPECT_GT(wanted, kNumPages - reserved);
      rows.pop_front();
    }
    std::set<PageId> in_use;
    for (Row& row : rows) {
      row.pages.grow_to(testing::random_int(0, row.reserved));
      for (const PageId page : row.pages.ids()) {
        ASSERT_TRUE(in_use.insert(page).second) << "in use twice";
        ASSERT_LT(static_cast<int64_t>(page), kNumPages);
      }
    }
  }
  rows.clear();
  EXPECT_EQ(pool.num_free(), kNumPages);
}

TEST(PagePool, ReusesThePageThatWasReleasedLast) {
  PagePool pool(10);
  std::optional<ReservedPages> a = pool.reserve(1), b = pool.reserve(1);
  a->grow_to(1);
  b->grow_to(1);
  const PageId page = a->ids()[0];
  a.reset();
  std::optional<ReservedPages> c = pool.reserve(1);
  c->grow_to(1);
  EXPECT_EQ(c->ids()[0], page);
}

TEST(PagePool, SharedPagesAreFreeWhenTheLastOfTheirRowsIsGone) {
  std::vector<int> order{0, 1, 2};
  do {
    PagePool pool(12);
    std::vector<std::optional<ReservedPages>> rows;
    rows.push_back(pool.reserve(5));
    rows[0]->grow_to(4);
    for (int i = 0; i < 2; ++i) rows.push_back(pool.reserve(6, rows[0]->ids().first(3)));
    EXPECT_EQ(pool.num_free(), 12 - 5 - 3 - 3);
    EXPECT_FALSE(pool.reserve(5, rows[0]->ids().first(3)));
    for (int i = 1; i < 3; ++i) {
      rows[size_t(i)]->grow_to(6);
      EXPECT_TRUE(std::ranges::equal(rows[size_t(i)]->ids().first(3), rows[0]->ids().first(3)));
    }
    for (const int i : order) {
      rows[size_t(i)].reset();
      std::set<PageId> held;
      int64_t num_reserved = 0;
      for (size_t r = 0; r < rows.size(); ++r) {
        if (!rows[r]) continue;
        held.insert(rows[r]->ids().begin(), rows[r]->ids().end());
        num_reserved += r == 0 ? 1 : 0;  // of its five it has taken four
      }
      EXPECT_EQ(pool.num_free(), 12 - std::ssize(held) - num_reserved);
      // What is free can be taken, and is none of what is held.
      std::optional<ReservedPages> rest = pool.reserve(pool.num_free());
      rest->grow_to(12 - std::ssize(held) - num_reserved);
      for (const PageId page : rest->ids()) EXPECT_FALSE(held.contains(page));
    }
    EXPECT_EQ(pool.num_free(), 12);
  } while (std::ranges::next_permutation(order).found);
}

TEST(PagePool, ARowReservesMoreAsLongAsThereIsAny) {
  PagePool pool(5);
  ReservedPages row = *pool.reserve(1, {}, 5), other = *pool.reserve(2);
  EXPECT_TRUE(row.reserve_to(3));
  EXPECT_EQ(row.num_reserved(), 3);
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_FALSE(row.reserve_to(4));
  row.grow_to(3);
  EXPECT_TRUE(row.reserve_to(2)) << "it has as many";
  other = {};
  EXPECT_TRUE(row.reserve_to(5));
  EXPECT_EQ(pool.num_free(), 0);
}

TEST(PagePool, AReplacedPageIsFree) {
  PagePool pool(4);
  ReservedPages a = *pool.reserve(2), b = *pool.reserve(2);
  a.grow_to(2);
  b.grow_to(1);
  b.replace(0, a.ids()[0]);
  EXPECT_EQ(b.ids()[0], a.ids()[0]);
  EXPECT_EQ(pool.num_free(), 1);
  a = {};
  EXPECT_EQ(pool.num_free(), 2) << "the page that both have, and one that b has reserved";
}

TEST(PagePool, AFailureSetsNothingAside) {
  PagePool pool(100);
  int64_t num_failures = 0;
  for (int64_t n = 1; num_failures == n - 1; ++n) {
    int64_t countdown = n;
    try {
      const testing::FailingAllocation failing(countdown);
      (void)pool.reserve(20 + n);
    } catch (const std::bad_alloc&) {
      ++num_failures;
    }
    EXPECT_EQ(pool.num_free(), 100);
  }
  EXPECT_EQ(num_failures, 3) << "the row's list and the pool's two";
}

TEST(PagePool, GrowingAndGivingBackAskForNoMemory) {
  PagePool pool(100);
  const int64_t before = testing::num_heap_allocations();
  std::optional<ReservedPages> row = pool.reserve(60), other = pool.reserve(40);
  const int64_t reserved = testing::num_heap_allocations();
  EXPECT_GT(reserved, before);
  row->grow_to(60);
  other->grow_to(40);
  row.reset();
  other.reset();
  EXPECT_EQ(testing::num_heap_allocations(), reserved);
  EXPECT_EQ(pool.num_free(), 100);
}

}  // namespace
}  // namespace heddle
