// The prefix cache that has a store, on disk, in host memory, or both: a page that comes from there
// has the contents that were computed, whoever is cancelled, evicted or forgotten meanwhile.
#include <cstring>
#include <list>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/cache/host_tier.h"
#include "engine/cache/prefix_cache.h"
#include "engine/cache/test/deferred_copier.h"
#include "random.h"
#include "temp_folder.h"

namespace heddle {
namespace {

constexpr int64_t kPageSize = 4, kPageBytes = 64, kNumPages = 24;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct StoredRow {
  std::vector<int32_t> tokens;
  PrefixPlace place{};
  ReservedPages pages{};

  [[nodiscard]] PrefixKey key() const { return {.tokens = tokens, .acts_from = kNever}; }
  [[nodiscard]] int64_t num_pages() const { return std::ssize(tokens) / kPageSize; }
  /// What the last of its first pages is filled with: it depends on all tokens before it.
  [[nodiscard]] uint64_t content(int64_t num_pages) const {
    const auto prefix = std::span(tokens).first(static_cast<size_t>(num_pages * kPageSize));
    return hash64(std::as_bytes(prefix), 1);
  }
};

enum class StoreKind : uint8_t { kDisk, kHost, kBoth };

class PrefixCacheStore : public ::testing::TestWithParam<StoreKind> {
 protected:
  /// num_host_pages: where it has any.
  [[nodiscard]] std::unique_ptr<PageTier> open_tier(int64_t num_pages, int64_t num_host_pages,
                                                    int64_t max_reads = HostTier::kMaxReads) {
    std::unique_ptr<PageStore> store;
    if (GetParam() != StoreKind::kHost) store = open(num_pages);
    if (GetParam() == StoreKind::kDisk) return store;
    return std::make_unique<HostTier>(
        PinnedPages({}, num_host_pages, kPageBytes), std::make_unique<testing::DeferredCopier>(),
        [this](PageId page) { return bytes(page); }, std::move(store), max_reads);
  }
  [[nodiscard]] std::unique_ptr<PageStore> open(int64_t num_pages) {
    PageIdentity identity;
    identity.add("test", "prefix cache");
    return std::make_unique<PageStore>(
        PageStoreOptions{.dir = (folder.path() / "pages").string(),
                         .max_bytes = num_pages * 256 + (int64_t{64} << 10),
                         .page_bytes = kPageBytes,
                         .page_size = kPageSize},
        identity, [this](const std::string& text) { warnings.push_back(text); });
  }
  [[nodiscard]] std::span<std::byte> bytes(PageId page) {
    return std::span(memory).subspan(size_t(page) * size_t(kPageBytes), size_t(kPageBytes));
  }
  void fill(PageId page, uint64_t content) {
    for (size_t i = 0; i < size_t(kPageBytes); i += sizeof(content)) {
      std::memcpy(bytes(page).data() + i, &content, sizeof(content));
    }
  }
  [[nodiscard]] bool has(PageId page, uint64_t content) {
    for (size_t i = 0; i < size_t(kPageBytes); i += sizeof(content)) {
      if (std::memcmp(bytes(page).data() + i, &content, sizeof(content)) != 0) return false;
    }
    return true;
  }

  testing::TempFolder folder;
  std::vector<std::string> warnings;
  std::vector<std::byte> memory = std::vector<std::byte>(size_t(kNumPages * kPageBytes));
};

INSTANTIATE_TEST_SUITE_P(Kinds, PrefixCacheStore,
                         ::testing::Values(StoreKind::kDisk, StoreKind::kHost, StoreKind::kBoth));

/// Of a row that is gone: the pages before those that are read stay until they have come.
TEST_P(PrefixCacheStore, WhatIsReadKeepsThePagesThatItContinues) {
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  if (GetParam() == StoreKind::kHost) GTEST_SKIP() << "it ends with the process";
  for (const bool is_later : {false, true}) {
    const std::unique_ptr<PageTier> store = open_tier(40, 20);
    PagePool pool(8);
    PrefixCache cache(pool, kPageSize);
    cache.set_store(*store, [this](PageId page) { return bytes(page); });
    const auto compute = [&](StoredRow row) {
      row.place = cache.begin();
      row.pages = pool.reserve(row.num_pages()).value();
      for (int64_t i = 1; i <= row.num_pages(); ++i) {
        row.pages.grow_to(i);
        fill(row.pages.ids().back(), row.content(i));
        (void)cache.add(row.place, row.key(), row.pages.ids().back());
      }
    };
    if (!is_later) {
      compute({tokens});
      continue;
    }
    compute({{1, 2, 3, 4}});
    for (int i = 0; i < 100; ++i) cache.poll();  // the store below has it, too
    StoredRow row{tokens};
    row.place = cache.begin();
    const PageId first = cache.find(row.place, row.key()).page;
    row.pages = pool.reserve(3, std::span(&first, 1)).value();
    ASSERT_TRUE(cache.begin_read(row.place, row.key(), 3));
    row.pages = {};
    ReservedPages others = pool.reserve(pool.num_free()).value();
    others.grow_to(others.num_reserved());
    EXPECT_EQ(std::ssize(others.ids()), 8 - 3);
    while (cache.wait()) {
    }
    row.place = cache.begin();
    for (int64_t i = 1; i <= 3; ++i) {
      const auto [found, page] = cache.find(row.place, row.key());
      ASSERT_EQ(found, PrefixCache::Found::kPage) << "page " << i;
      EXPECT_TRUE(has(page, row.content(i)));
    }
  }
}

TEST_P(PrefixCacheStore, APageHasItsContentsWhereverItComesFrom) {
  int64_t num_read = 0;
  for (int process = 0; process < 4; ++process) {
    const std::unique_ptr<PageTier> store = open_tier(400, 60, testing::random_int(1, 8));
    PagePool pool(kNumPages);
    PrefixCache cache(pool, kPageSize);
    cache.set_store(*store, [this](PageId page) { return bytes(page); });
    std::list<StoredRow> rows;
    for (int round = 0; round < 3000; ++round) {
      if (testing::random_int(0, 1) == 0) {
        StoredRow row;
        for (int64_t i = testing::random_int(1, 8) * kPageSize; i > 0; --i) {
          row.tokens.push_back(testing::random_int(0, 12) == 0 ? 1 : 0);
        }
        row.place = cache.begin();
        if (auto pages = pool.reserve(row.num_pages())) {
          row.pages = std::move(*pages);
          rows.push_back(std::move(row));
        }
      }
      if (testing::random_int(0, 9) == 0) {
        (void)cache.wait();
      } else {
        cache.poll();
      }
      for (StoredRow& row : rows) {
        if (row.place.num_pages == row.num_pages() || !cache.is_valid(row.place)) continue;
        if (row.place.claim < 0) {
          const auto [found, page] = cache.find(row.place, row.key());
          if (found == PrefixCache::Found::kPage) {
            ASSERT_TRUE(has(page, row.content(row.place.num_pages))) << "round " << round;
            row.pages.share(page);
          } else if (found == PrefixCache::Found::kNothing &&
                     !cache.begin_read(row.place, row.key(), row.num_pages())) {
            cache.claim(row.place, row.key());
          } else if (found == PrefixCache::Found::kClaim) {
            cache.read_on(row.place, row.key(), row.num_pages());
          }
          continue;
        }
        row.pages.grow_to(row.place.num_pages + 1);
        const PageId own = row.pages.ids().back();
        fill(own, row.content(row.place.num_pages + 1));
        ASSERT_EQ(cache.add(row.place, row.key(), own), own);
      }
      if (testing::random_int(0, 1000) == 0) cache.clear();
      for (auto next = rows.begin(); next != rows.end();) {
        const auto row = next++;
        const bool is_done = row->place.num_pages == row->num_pages();
        if (!is_done && cache.is_valid(row->place) && testing::random_int(0, 40) > 0) continue;
        cache.unclaim(row->place);
        rows.erase(row);
      }
    }
    num_read += cache.num_read();
    for (StoredRow& row : rows) cache.unclaim(row.place);
    rows.clear();
    while (cache.wait()) {
    }
    EXPECT_EQ(pool.num_free(), kNumPages);
    EXPECT_EQ(pool.num_unused(), cache.num_entries());
  }
  EXPECT_GT(num_read, 100);
  EXPECT_TRUE(warnings.empty()) << warnings.front();
}

}  // namespace
}  // namespace heddle
