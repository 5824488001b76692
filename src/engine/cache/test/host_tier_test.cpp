// Pages in host memory: which stay, which go, and that each has the bytes that it was written with,
// whenever the copies are done.
#include "engine/cache/host_tier.h"

#include <memory>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "engine/cache/test/deferred_copier.h"
#include "engine/cache/test/stored_pages.h"

namespace heddle {
namespace {

using testing::kTestPageBytes;
using testing::TestPage;

/// A tier of small pages and a device of as many.
class HostTiers : public ::testing::Test {
 protected:
  static constexpr int kNumPages = 64;  // of the device

  void open(int64_t num_slots, int per_cent = 30, std::unique_ptr<PageStore> below = nullptr,
            bool has_steps = true) {
    tier.emplace(
        PinnedPages({}, num_slots, kTestPageBytes),
        [&] {
          auto made = std::make_unique<testing::DeferredCopier>(per_cent, has_steps);
          copier = made.get();
          return made;
        }(),
        [this](PageId page) { return bytes(page); }, std::move(below));
  }
  [[nodiscard]] std::unique_ptr<PageStore> store(bool takes_salted = false) {
    PageStoreOptions options = testing::TestStore::options_of(folder.path().string(), 100);
    options.takes_salted = takes_salted;
    return std::make_unique<PageStore>(options, testing::TestStore::identity_of("m1"),
                                       [](const std::string& text) { ADD_FAILURE() << text; });
  }
  [[nodiscard]] std::span<std::byte> bytes(PageId page) {
    return std::span(device).subspan(size_t(page) * kTestPageBytes, kTestPageBytes);
  }
  /// What a step does that computes the page.
  void compute(PageId id, const testing::Bytes& contents) {
    tier->before_reuse(bytes(id).data());
    std::ranges::copy(contents, bytes(id).begin());
  }
  /// The pages are computed one after another, in places that are used again.
  std::vector<StoredPage> write(const std::vector<TestPage>& pages) {
    std::vector<StoredPage> ids;
    for (size_t i = 0; i < pages.size(); ++i) {
      const auto place = PageId(i % 3);
      compute(place, pages[i].bytes);
      ids.push_back(tier->write(testing::TestStore::content_of(pages[i], ids), bytes(place))
                        .value_or(StoredPage{~uint64_t{0}}));
    }
    settle();
    return ids;
  }
  void settle() {
    for (int i = 0; i < 1000; ++i) (void)tier->poll();
  }
  /// How many are found, of a chain, and have their bytes.
  int read(const std::vector<TestPage>& pages) {
    std::vector<StoredPage> ids;
    for (const TestPage& page : pages) {
      const auto found = tier->find(testing::TestStore::content_of(page, ids));
      if (!found || !found->is_readable) break;
      ids.push_back(found->id);
    }
    int count = 0;
    for (; count < std::ssize(ids); ++count) {
      const PageId to{kNumPages - 1 - count};
      tier->before_reuse(bytes(to).data());
      if (!tier->begin_read(ids[size_t(count)], bytes(to))) break;
    }
    for (int i = 0; i < count; ++i) {
      const auto finished = tier->wait();
      EXPECT_TRUE(finished && finished->is_good);
      const auto got = bytes(PageId{kNumPages - 1 - i});
      EXPECT_TRUE(std::ranges::equal(got, pages[size_t(i)].bytes)) << "page " << i;
    }
    EXPECT_FALSE(tier->wait());
    return count;
  }
  static std::vector<PageId> places(int first, int count) {
    std::vector<PageId> ids;
    for (int i = 0; i < count; ++i) ids.push_back(PageId{first + i});
    return ids;
  }

  testing::TempFolder folder;
  std::vector<std::byte> device = std::vector<std::byte>(kNumPages * kTestPageBytes);
  testing::DeferredCopier* copier = nullptr;
  std::optional<HostTier> tier;
};

TEST_F(HostTiers, WhatWasWrittenComesBack) {
  open(20);
  const std::vector<TestPage> chain = testing::random_chain(12);
  (void)write(chain);
  EXPECT_EQ(tier->stats().num_pages, 12);
  EXPECT_EQ(read(chain), 12);
  EXPECT_EQ(read(testing::random_chain(3)), 0);
  tier->clear();
  EXPECT_EQ(tier->stats().num_pages, 0);
  EXPECT_EQ(read(chain), 0);
  (void)write(chain);
  EXPECT_EQ(read(chain), 12);
}

TEST_F(HostTiers, ThePagesThatWereUsedLongestAgoGoAndLeavesBeforeTheirParents) {
  open(12);
  const std::vector<TestPage> a = testing::random_chain(5), b = testing::random_chain(5);
  (void)write(a);
  (void)write(b);
  EXPECT_EQ(read(a), 5);
  (void)write(testing::random_chain(4));
  EXPECT_EQ(read(a), 5);
  EXPECT_EQ(read(b), 3) << "two leaves went";
  EXPECT_EQ(tier->stats().num_evicted, 2);
  (void)write(testing::random_chain(30));
  EXPECT_EQ(tier->stats().num_pages, 12) << "a chain that is longer keeps its beginning";
}

/// A copy that is not done has its page and its slot to itself.
TEST_F(HostTiers, PagesOnTheirWayAreNotEvicted) {
  open(4, 0);
  const std::vector<TestPage> chain = testing::random_chain(4);
  std::vector<StoredPage> ids;
  for (int i = 0; i < 4; ++i) {
    compute(PageId{i}, chain[size_t(i)].bytes);
    ids.push_back(
        tier->write(testing::TestStore::content_of(chain[size_t(i)], ids), bytes(PageId{i}))
            .value());
  }
  const TestPage other = testing::random_page(-1);
  EXPECT_FALSE(tier->write(testing::TestStore::content_of(other, {}), bytes(PageId{9})));
  EXPECT_EQ(tier->save(places(9, 1)), PageShelf::Saved::kNone);
  EXPECT_EQ(read(chain), 4) << "reads wait for the copies";
}

/// Also where other pages are being read in already since the last step.
TEST_F(HostTiers, NothingIsReadIntoAPageThatIsOnItsWayOut) {
  open(8, 100, nullptr, false);
  const std::vector<TestPage> chain = testing::random_chain(2);
  const std::vector<StoredPage> ids = write(chain);
  copier->set_per_cent(0);
  const TestPage out = testing::random_page(-1);
  std::ranges::copy(out.bytes, bytes(PageId{9}).begin());
  ASSERT_TRUE(tier->write(testing::TestStore::content_of(out, {}), bytes(PageId{9})));
  ASSERT_TRUE(tier->begin_read(ids[0], bytes(PageId{10})));
  tier->before_reuse(bytes(PageId{9}).data());
  ASSERT_TRUE(tier->begin_read(ids[1], bytes(PageId{9})));
  while (tier->wait()) {
  }
  EXPECT_TRUE(std::ranges::equal(bytes(PageId{9}), chain[1].bytes));
  copier->set_per_cent(100);
  settle();
  EXPECT_EQ(read({out}), 1);
}

TEST_F(HostTiers, PagesOfParkedRequestsMakeOthersGoAndStay) {
  for (int round = 0; round < 50; ++round) {
    open(10);
    const std::vector<TestPage> chain = testing::random_chain(8);
    (void)write(chain);
    std::vector<testing::Bytes> contents;
    for (int i = 0; i < 5; ++i) {
      contents.push_back(testing::random_bytes(kTestPageBytes));
      compute(PageId{i}, contents.back());
    }
    const auto saved = tier->save(places(0, 5));
    ASSERT_NE(saved, PageShelf::Saved::kNone);
    EXPECT_EQ(tier->stats().num_parked, 5);
    for (int i = 0; i < 5; ++i) compute(PageId{i}, testing::random_bytes(kTestPageBytes));
    EXPECT_EQ(tier->save(places(0, 6)), PageShelf::Saved::kNone) << "there is no room";
    tier->clear();
    (void)write(testing::random_chain(20));
    EXPECT_EQ(tier->stats().num_pages, 5);
    // Begun, broken off since the pages are taken, and begun again.
    ASSERT_TRUE(tier->begin_restore(saved, places(10, 5)));
    (void)tier->is_restored(saved);
    tier->break_off(saved);
    const testing::Bytes others = testing::random_bytes(kTestPageBytes);
    for (const PageId id : places(10, 5)) compute(id, others);
    ASSERT_TRUE(tier->begin_restore(saved, places(20, 5)));
    if (round % 2 == 0) tier->wait_until_restored(saved);
    while (!tier->is_restored(saved)) continue;
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(std::ranges::equal(bytes(PageId{20 + i}), contents[size_t(i)]));
      EXPECT_TRUE(std::ranges::equal(bytes(PageId{10 + i}), others));
    }
    tier->drop(saved);
    EXPECT_EQ(tier->stats().num_parked, 0);
    EXPECT_NE(tier->save(places(0, 10)), PageShelf::Saved::kNone);
  }
}

TEST_F(HostTiers, WhatTheHostHasNoRoomForComesFromDisk) {
  const std::vector<TestPage> a = testing::random_chain(10), b = testing::random_chain(10);
  for (int process = 0; process < 3; ++process) {
    tier.reset();
    open(12, 30, store());
    if (process == 0) {
      (void)write(a);
      EXPECT_EQ(read(a), 10);
    }
    for (int round = 0; round < 3; ++round) {
      (void)write(b);
      EXPECT_EQ(read(b), 10) << "process " << process;
      do {
        settle();
      } while (tier->below()->stats().num_queued > 0);
      EXPECT_EQ(read(a), 10) << "process " << process;
    }
    EXPECT_EQ(tier->below()->stats().num_pages, 20);
    EXPECT_LE(tier->stats().num_pages, 12);
  }
  tier->clear();
  EXPECT_EQ(read(a), 0);
}

TEST_F(HostTiers, SaltedPagesAreOnDiskWhereTheStoreTakesThem) {
  std::vector<TestPage> chain = testing::random_chain(3);
  for (const bool takes_salted : {false, true}) {
    for (int process = 0; process < 2; ++process) {
      tier.reset();
      open(10, 30, store(takes_salted));
      std::vector<StoredPage> ids;
      const auto content = [&](size_t i) {
        PageContent one = testing::TestStore::content_of(chain[i], ids);
        one.is_salted = i == 0;
        return one;
      };
      const auto first = tier->find(content(0));
      EXPECT_EQ(first.has_value(), takes_salted && process == 1);
      for (size_t i = 0; i < chain.size() && process == 0; ++i) {
        compute(PageId(i), chain[i].bytes);
        ids.push_back(tier->write(content(i), bytes(PageId(i))).value());
      }
      do {
        settle();
      } while (tier->below()->stats().num_queued > 0);
      EXPECT_EQ(tier->below()->stats().num_pages, takes_salted ? 3 : 0);
    }
  }
}

/// A copy that fails: nothing is found or kept from there on, and nothing hangs.
TEST_F(HostTiers, ADeviceThatFailsHasNoPages) {
  class FailingCopier final : public PageCopier {
   public:
    Copy copy_out(std::span<std::byte>, const std::byte*, bool) override { return next(); }
    Copy copy_in(std::byte*, std::span<const std::byte>, Copy, bool) override { return next(); }
    bool is_done(Copy copy) override {
      if (copy.number > 3) throw Error(ErrorCode::kCuda, "failed");
      return true;
    }
    void wait(Copy copy) override { (void)is_done(copy); }
    void hold_steps(Copy copy) override { (void)is_done(copy); }

   private:
    Copy next() { return {Way::kOut, ++count_}; }
    uint64_t count_ = 0;
  };
  HostTier failing(PinnedPages({}, 10, kTestPageBytes), std::make_unique<FailingCopier>(),
                   [this](PageId page) { return bytes(page); });
  const std::vector<TestPage> chain = testing::random_chain(6);
  std::vector<StoredPage> ids;
  for (const TestPage& page : chain) {
    ids.push_back(
        failing.write(testing::TestStore::content_of(page, ids), bytes(PageId{0})).value());
  }
  ASSERT_TRUE(failing.begin_read(ids[0], bytes(PageId{1})));
  const auto saved = failing.save(places(0, 2));
  const auto finished = failing.wait();
  ASSERT_TRUE(finished);
  EXPECT_FALSE(finished->is_good);
  EXPECT_FALSE(failing.wait());
  EXPECT_FALSE(failing.find(testing::TestStore::content_of(chain[0], {})));
  EXPECT_EQ(failing.save(places(0, 2)), PageShelf::Saved::kNone);
  if (saved != PageShelf::Saved::kNone) {
    EXPECT_FALSE(failing.begin_restore(saved, places(0, 2)));
    failing.drop(saved);
  }
}

}  // namespace
}  // namespace heddle
