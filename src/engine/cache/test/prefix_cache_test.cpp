#include "engine/cache/prefix_cache.h"

#include <list>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "random.h"

namespace heddle {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
using Tokens = std::vector<int32_t>;

/// A sequence as the engine has it.
struct Row {
  Tokens tokens;
  Digest salt{}, adapters{};
  int64_t acts_from = kNever;
  PrefixPlace place{};
  ReservedPages pages{};

  [[nodiscard]] PrefixKey key() const {
    return {.tokens = tokens, .salt = salt, .adapters = adapters, .acts_from = acts_from};
  }
};

class PrefixCacheTest : public ::testing::Test {
 protected:
  static constexpr int64_t kPageSize = 4;

  /// Gives the row what the cache has, at most so many pages; how many that were.
  int64_t start(Row& row, int64_t max_pages) {
    std::vector<PageId> found;
    row.place = cache.begin();
    while (row.place.num_pages < max_pages) {
      const auto [what, page] = cache.find(row.place, row.key());
      if (what != PrefixCache::Found::kPage) break;
      found.push_back(page);
    }
    row.pages = pool.reserve(std::ssize(row.tokens) / kPageSize, found).value();
    return std::ssize(found);
  }
  /// Computes the rest of its pages.
  void compute(Row& row) {
    row.pages.grow_to(std::ssize(row.tokens) / kPageSize);
    for (int64_t i = row.place.num_pages; i < std::ssize(row.pages.ids()); ++i) {
      const PageId own = row.pages.ids()[size_t(i)], page = cache.add(row.place, row.key(), own);
      if (page != own) row.pages.replace(i, page);
    }
  }
  /// Runs a row from its beginning to its end; the pages that it has found.
  int64_t run(Row row) {
    const int64_t num_found = start(row, std::ssize(row.tokens) / kPageSize);
    compute(row);
    return num_found;
  }

  PagePool pool{8};
  PrefixCache cache{pool, kPageSize};
  const Tokens tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const Digest a{1, 2}, b{1, 3};
};

TEST_F(PrefixCacheTest, FindsWholePagesOfTheSameBeginning) {
  EXPECT_EQ(run({tokens}), 0);
  EXPECT_EQ(run({tokens}), 3);
  Tokens other = tokens;
  other[6] = 0;
  EXPECT_EQ(run({other}), 1);
  EXPECT_EQ(run({other}), 3);
  EXPECT_EQ(run({{5, 6, 7, 8}}), 0) << "of the second page's tokens at another place";
  EXPECT_EQ(pool.num_free(), pool.num_pages());
  EXPECT_EQ(cache.num_entries(), 3 + 2 + 1);
  EXPECT_EQ(pool.num_unused(), 6);
}

TEST_F(PrefixCacheTest, SaltsKeepSequencesApart) {
  EXPECT_EQ(run({tokens, {7, 7}}), 0);
  EXPECT_EQ(run({tokens, {7, 8}}), 0);
  EXPECT_EQ(run({tokens, {7, 7}}), 3);
}

TEST_F(PrefixCacheTest, AdaptersCountFromWhereTheyAct) {
  EXPECT_EQ(run({tokens, {}, a, 6}), 0);
  EXPECT_EQ(run({tokens}), 1) << "the base model's, before the adapter acts";
  EXPECT_EQ(run({tokens, {}, b, 6}), 1);
  EXPECT_EQ(run({tokens, {}, a, 6}), 3);
  EXPECT_EQ(run({tokens, {}, a, 5}), 1) << "it acts on one position more of the second page";
  EXPECT_EQ(run({tokens, {}, a, 0}), 0);
  EXPECT_EQ(cache.num_entries(), 8) << "all pages are in use by now";
}

/// The one that was found or added last is looked at first.
TEST_F(PrefixCacheTest, FindsEveryContinuationOfAPageInAnyOrder) {
  const auto branch = [&](int32_t last) { return Row{{1, 2, 3, 4, 5, 6, 7, last}}; };
  for (const int32_t last : {8, 9, 10}) EXPECT_EQ(run(branch(last)), last == 8 ? 0 : 1);
  for (const int32_t last : {8, 10, 9, 9, 8}) EXPECT_EQ(run(branch(last)), 2);
  {
    ReservedPages rest = pool.reserve(5).value();
    rest.grow_to(5);  // four pages were never used, the fifth is that of the least recently found
    EXPECT_EQ(cache.num_entries(), 3);
  }
  for (const int32_t last : {8, 9}) EXPECT_EQ(run(branch(last)), 2);
  EXPECT_EQ(run(branch(10)), 1);
  {
    ReservedPages rest = pool.reserve(6).value();
    rest.grow_to(6);  // four that are free, then 8 and 9; the last branch is the one found last
  }
  EXPECT_EQ(run(branch(8)), 1);
  EXPECT_EQ(run(branch(10)), 2);
}

/// Hashes that collide would lend foreign keys, were it not for the comparison: what differs in any
/// part is not found, and the cache has no place for a second entry of one hash.
TEST_F(PrefixCacheTest, RandomSequencesFindWhatAMapOfWholePrefixesHas) {
  using Whole = std::pair<Tokens, std::pair<uint64_t, uint64_t>>;  // tokens; salt, adapters
  PagePool many(4000);
  PrefixCache of_many(many, kPageSize);
  std::map<Whole, PageId> want;
  for (int round = 0; round < 800; ++round) {
    Row row;
    row.salt.low = static_cast<uint64_t>(testing::random_int(0, 1));
    row.adapters.low = static_cast<uint64_t>(testing::random_int(0, 2));
    row.acts_from = row.adapters.low == 0 ? kNever : 0;
    for (int64_t i = testing::random_int(1, 5) * kPageSize; i > 0; --i) {
      row.tokens.push_back(static_cast<int32_t>(testing::random_int(0, 1)));
    }
    const auto whole = [&](int64_t num_pages) {
      return Whole{Tokens(row.tokens.begin(), row.tokens.begin() + num_pages * kPageSize),
                   {row.salt.low, row.adapters.low}};
    };
    row.place = of_many.begin();
    std::vector<PageId> found;
    const int64_t num_pages = std::ssize(row.tokens) / kPageSize;
    while (row.place.num_pages < num_pages) {
      const auto [what, page] = of_many.find(row.place, row.key());
      if (what != PrefixCache::Found::kPage) break;
      found.push_back(page);
    }
    for (int64_t i = 1; i <= num_pages; ++i) {
      const auto place = want.find(whole(i));
      ASSERT_EQ(place != want.end(), i <= std::ssize(found)) << "round " << round;
      if (place == want.end()) continue;
      ASSERT_EQ(found[size_t(i - 1)], place->second);
    }
    row.pages = many.reserve(num_pages, found).value();
    row.pages.grow_to(num_pages);
    for (int64_t i = std::ssize(found); i < num_pages; ++i) {
      const PageId page = row.pages.ids()[size_t(i)];
      ASSERT_EQ(of_many.add(row.place, row.key(), page), page);
      want[whole(i + 1)] = page;
    }
  }
  EXPECT_GT(want.size(), 500u);
}

TEST_F(PrefixCacheTest, EvictsTheLeastRecentlyUsedAndLeavesBeforeTheirParents) {
  const Tokens other{21, 22, 23, 24, 25, 26, 27, 28};
  EXPECT_EQ(run({tokens}), 0);
  EXPECT_EQ(run({other}), 0);
  EXPECT_EQ(run({{1, 2, 3, 4}}), 1);  // used again: the rest of its chain is now the oldest
  ReservedPages rest = pool.reserve(5).value();
  rest.grow_to(4);  // three pages were never used, the fourth is evicted
  EXPECT_EQ(cache.num_entries(), 4);
  Row row{tokens};
  EXPECT_EQ(start(row, 3), 2) << "the leaf is gone";
  row = {};
  EXPECT_EQ(run({other}), 2);
}

TEST_F(PrefixCacheTest, APageThatARowHasIsNotEvicted) {
  Row row{tokens};
  EXPECT_EQ(start(row, 3), 0);
  compute(row);
  EXPECT_EQ(pool.num_free(), 5);
  EXPECT_FALSE(pool.reserve(6));
  ReservedPages rest = pool.reserve(5).value();
  rest.grow_to(5);
  EXPECT_EQ(cache.num_entries(), 3);
  row = {};
  EXPECT_EQ(pool.num_unused(), 3);
}

TEST_F(PrefixCacheTest, WhoComputesTheSameTakesTheFirstOnesPages) {
  Row first{tokens}, second{tokens};
  EXPECT_EQ(start(first, 3), 0);
  EXPECT_EQ(start(second, 3), 0);
  compute(first);
  EXPECT_EQ(pool.num_free(), 2);
  compute(second);
  EXPECT_TRUE(std::ranges::equal(first.pages.ids(), second.pages.ids()));
  EXPECT_EQ(pool.num_free(), 5) << "its own are free again";
}

TEST_F(PrefixCacheTest, AClaimedPageIsWaitedForUntilItIsComputedOrGivenUp) {
  Row first{tokens}, second{tokens};
  EXPECT_EQ(start(first, 3), 0);
  cache.claim(first.place, first.key());
  EXPECT_EQ(start(second, 3), 0);
  EXPECT_EQ(cache.find(second.place, second.key()).found, PrefixCache::Found::kClaim);
  first.pages.grow_to(1);
  EXPECT_EQ(cache.add(first.place, first.key(), first.pages.ids()[0]), first.pages.ids()[0]);
  const auto [found, page] = cache.find(second.place, second.key());
  EXPECT_EQ(found, PrefixCache::Found::kPage);
  second.pages.share(page);
  EXPECT_EQ(cache.find(second.place, second.key()).found, PrefixCache::Found::kClaim);
  cache.unclaim(first.place);
  first = {};
  EXPECT_EQ(cache.find(second.place, second.key()).found, PrefixCache::Found::kNothing);
  cache.claim(second.place, second.key());
  compute(second);
  EXPECT_EQ(cache.num_entries(), 3);
  EXPECT_EQ(run({tokens}), 3);
}

/// A row that has not waited computes a page that another one has claimed.
TEST_F(PrefixCacheTest, AClaimIsItsOwnersToFulfil) {
  Row owner{tokens}, other{tokens};
  EXPECT_EQ(start(owner, 3), 0);
  EXPECT_EQ(start(other, 3), 0);
  cache.claim(owner.place, owner.key());
  compute(other);
  EXPECT_FALSE(cache.is_valid(other.place));
  EXPECT_EQ(cache.num_entries(), 0);
  compute(owner);
  EXPECT_EQ(cache.num_entries(), 3);
  other = {};
  owner = {};
  EXPECT_EQ(pool.num_free(), pool.num_pages());
}

TEST_F(PrefixCacheTest, WhatIsClearedIsForgottenAndRowsKeepTheirPages) {
  EXPECT_EQ(run({{21, 22, 23, 24}}), 0);
  Row row{tokens}, claiming{{31, 32, 33, 34}};
  EXPECT_EQ(start(row, 3), 0);
  EXPECT_EQ(start(claiming, 1), 0);
  cache.claim(claiming.place, claiming.key());
  row.pages.grow_to(1);
  (void)cache.add(row.place, row.key(), row.pages.ids()[0]);
  cache.clear();
  EXPECT_EQ(cache.num_entries(), 0);
  EXPECT_EQ(pool.num_unused(), 0);
  EXPECT_EQ(pool.num_free(), 8 - 3 - 1);
  cache.unclaim(claiming.place);
  compute(row);  // which leaves no entries: the first of its chain is gone
  EXPECT_EQ(cache.num_entries(), 0);
  row = {};
  claiming = {};
  EXPECT_EQ(pool.num_free(), 8);
  EXPECT_EQ(run({tokens}), 0);
  EXPECT_EQ(run({tokens}), 3);
}

class PrefixTails : public PrefixCacheTest {
 protected:
  PrefixTails() {
    cache.set_copy_page([this](PageId from, PageId to) {
      copies.emplace_back(from, to);
      return true;
    });
  }
  /// Runs a row that ends with all its tokens computed, the last of them in a page that is not
  /// whole; the tokens that it has found.
  int64_t run_to_end(Row row, bool has_tail = true) {
    const int64_t num_pages = std::ssize(row.tokens) / kPageSize;
    int64_t found = start(row, num_pages) * kPageSize;
    const int64_t left = std::ssize(row.tokens) - 1 - found;
    if (left > 0) found += cache.find_part(row.place, row.key(), left).num_tokens;
    compute(row);
    EXPECT_TRUE(row.pages.reserve_to(num_pages + 1));
    row.pages.grow_to(num_pages + 1);
    if (has_tail) cache.add_tail(row.place, row.key(), row.pages.ids().back());
    return found;
  }
  /// Of `tokens`.
  [[nodiscard]] Tokens first(int64_t count, int32_t changed = -1) const {
    Tokens some(tokens.begin(), tokens.begin() + count);
    if (changed >= 0) some[size_t(changed)] = 0;
    return some;
  }

  std::vector<std::pair<PageId, PageId>> copies;
};

TEST_F(PrefixTails, AreFoundAsFarAsTheirTokensAreTheSame) {
  EXPECT_EQ(run_to_end({first(7)}), 0);
  EXPECT_EQ(cache.num_entries(), 2) << "a page and a tail";
  EXPECT_EQ(run_to_end({first(11)}, false), 7);
  EXPECT_EQ(run_to_end({first(7, 6)}, false), 6) << "the third token differs";
  EXPECT_EQ(run_to_end({first(7, 4)}, false), 4) << "the first one does";
  EXPECT_EQ(run_to_end({first(3)}), 0) << "in its first page a sequence has no tail";
}

TEST_F(PrefixTails, APartOfAWholePageIsFoundToo) {
  EXPECT_EQ(run_to_end({tokens}, false), 0);
  EXPECT_EQ(run_to_end({first(11, 10)}, false), 10);
  EXPECT_EQ(run_to_end({first(11)}, false), 10) << "all but the last token";
  EXPECT_EQ(run_to_end({first(12, 9)}, false), 9);
  Row aligned{tokens};  // its last page is known, and other tokens came after the page before last
  EXPECT_EQ(start(aligned, 2), 2);
  EXPECT_EQ(cache.find_part(aligned.place, aligned.key(), 3).num_tokens, 3);
}

TEST_F(PrefixTails, AreOfTheirSaltAndAdapters) {
  EXPECT_EQ(run_to_end({first(7), {5, 5}}), 0);
  EXPECT_EQ(run_to_end({first(7)}), 0);
  EXPECT_EQ(run_to_end({first(7), {}, a, 0}), 0);
  EXPECT_EQ(run_to_end({first(7), {}, b, 0}), 0);
  EXPECT_EQ(run_to_end({first(7), {}, a, 5}), 5) << "up to where another acts within the page";
  EXPECT_EQ(run_to_end({first(7), {}, a, 0}), 6);
}

/// Up to where adapters begin to act within a page it has the keys of the base model.
TEST_F(PrefixTails, AreOfOtherAdaptersUpToWhereTheseAct) {
  EXPECT_EQ(run_to_end({first(7), {}, a, 6}), 0);
  EXPECT_EQ(run_to_end({first(7), {}, b, 6}, false), 6);
  EXPECT_EQ(run_to_end({first(7), {}, b, 5}, false), 5);
  EXPECT_EQ(run_to_end({first(7)}, false), 6) << "and the base model's";
  EXPECT_EQ(run_to_end({first(7)}), 6);
  EXPECT_EQ(run_to_end({first(7), {}, a, 5}, false), 5) << "from the base model's tail";
}

TEST_F(PrefixTails, GoWithTheWholePageAndWithTheNextTail) {
  EXPECT_EQ(run_to_end({first(6)}), 0);
  EXPECT_EQ(run_to_end({first(7)}), 6);
  EXPECT_EQ(cache.num_entries(), 2) << "one tail, the last";
  EXPECT_EQ(run_to_end({first(8)}, false), 7);
  EXPECT_EQ(cache.num_entries(), 2) << "two pages";
  EXPECT_EQ(run_to_end({first(7, 6)}), 6);
  EXPECT_EQ(run_to_end({first(8)}, false), 8);
  EXPECT_EQ(cache.num_entries(), 3) << "of other tokens than the page, it stays";
  EXPECT_EQ(pool.num_unused(), 3);
}

TEST_F(PrefixTails, AreEvictedBeforeWhatTheyContinue) {
  EXPECT_EQ(run_to_end({first(7)}), 0);
  const Tokens other{9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9};
  EXPECT_EQ(run_to_end({other}), 0) << "six pages and a tail: all but one of eight";
  EXPECT_EQ(run_to_end({first(7)}, false), 4);
  cache.clear();
  EXPECT_EQ(cache.num_entries(), 0);
  EXPECT_EQ(pool.num_free(), pool.num_pages());
  EXPECT_EQ(pool.num_unused(), 0);
}

/// Rows of few different tokens come, claim, wait, compute, give up and end at random in a pool
/// that is too small for them. Pages stand for their contents: the whole prefix that was computed
/// into them.
TEST_F(PrefixCacheTest, NoRowEverHasAPageOfOtherContents) {
  PagePool small(24);
  PrefixCache of_small(small, kPageSize);
  std::vector<Tokens> contents(24);
  std::list<Row> rows;
  int64_t num_taken = 0, num_waits = 0;
  for (int round = 0; round < 20000; ++round) {
    const auto prefix = [&](const Row& row, int64_t num_pages) {
      return Tokens(row.tokens.begin(), row.tokens.begin() + num_pages * kPageSize);
    };
    if (testing::random_int(0, 1) == 0) {
      Row row;
      for (int64_t i = testing::random_int(1, 6) * kPageSize; i > 0; --i) {
        row.tokens.push_back(static_cast<int32_t>(testing::random_int(0, 60) == 0));
      }
      row.place = of_small.begin();
      if (auto pages = small.reserve(std::ssize(row.tokens) / kPageSize)) {
        row.pages = std::move(*pages);
        rows.push_back(std::move(row));
      }
    }
    for (Row& row : rows) {
      if (testing::random_int(0, 3) > 0) continue;
      const int64_t num_pages = std::ssize(row.tokens) / kPageSize;
      if (row.place.num_pages == num_pages || !of_small.is_valid(row.place)) continue;
      if (row.place.claim < 0) {
        const auto [found, page] = of_small.find(row.place, row.key());
        num_waits += found == PrefixCache::Found::kClaim ? 1 : 0;
        if (found == PrefixCache::Found::kPage) {
          ASSERT_EQ(contents[size_t(page)], prefix(row, row.place.num_pages));
          row.pages.share(page);
          ++num_taken;
        } else if (found == PrefixCache::Found::kNothing) {
          of_small.claim(row.place, row.key());
        }
        continue;
      }
      row.pages.grow_to(row.place.num_pages + 1);
      const PageId own = row.pages.ids().back();
      contents[size_t(own)] = prefix(row, row.place.num_pages + 1);
      ASSERT_EQ(of_small.add(row.place, row.key(), own), own);
    }
    if (testing::random_int(0, 500) == 0) of_small.clear();
    for (auto next = rows.begin(); next != rows.end();) {
      const auto row = next++;
      const bool is_done = row->place.num_pages * kPageSize == std::ssize(row->tokens);
      if (!is_done && of_small.is_valid(row->place) && testing::random_int(0, 40) > 0) continue;
      of_small.unclaim(row->place);
      rows.erase(row);
    }
  }
  EXPECT_GT(num_taken, 1000);
  EXPECT_GT(num_waits, 100);
  for (Row& row : rows) of_small.unclaim(row.place);
  rows.clear();
  EXPECT_EQ(small.num_free(), 24);
  EXPECT_EQ(small.num_unused(), of_small.num_entries());
}

}  // namespace
}  // namespace heddle
