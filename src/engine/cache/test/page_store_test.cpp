#include "engine/cache/page_store.h"

#include <numeric>

#include "expect_error.h"
#include "stored_pages.h"

namespace heddle {
namespace {

using testing::Bytes;
using testing::count_found;
using testing::TempFolder;
using testing::TestPage;
using testing::TestStore;

std::string place_in(const TempFolder& folder) { return (folder.path() / "kv").string(); }

TEST(PageStore, GivesBackWhatWasWritten) {
  const TempFolder folder;
  TestStore store(place_in(folder));
  ASSERT_TRUE(store->is_open());
  const std::vector<TestPage> pages = testing::random_tree(40);
  EXPECT_EQ(count_found(pages, store.read(pages)), 0);
  EXPECT_EQ(store.write(pages), 40);
  EXPECT_EQ(count_found(pages, store.read(pages)), 40);
  EXPECT_EQ(store.write(pages), 40) << "they are there";
  EXPECT_EQ(store->stats().num_written, 40);
  EXPECT_EQ(store->stats().num_read, 40);
  EXPECT_TRUE(store.warnings.empty());
}

TEST(PageStore, KeepsPagesForTheNextProcess) {
  const TempFolder folder;
  std::vector<TestPage> pages = testing::random_tree(30);
  PageSecret secret;
  {
    TestStore store(place_in(folder));
    store.write({pages.begin(), pages.begin() + 20});
    secret = store->secret();
  }
  TestStore store(place_in(folder));
  EXPECT_EQ(store->secret(), secret);
  EXPECT_EQ(store->stats().num_pages, 20);
  EXPECT_EQ(count_found(pages, store.read(pages)), 20);
  EXPECT_EQ(store.write(pages), 30);
  EXPECT_EQ(store->stats().num_written, 10);
  EXPECT_EQ(count_found(pages, store.read(pages)), 30);
  EXPECT_TRUE(store.warnings.empty());
}

TEST(PageStore, CloseWritesWhatIsQueued) {
  const TempFolder folder;
  const std::vector<TestPage> pages = testing::random_chain(50);
  {
    TestStore store(place_in(folder));
    std::vector<StoredPage> ids;
    for (const TestPage& page : pages) {
      ids.push_back(store->write(TestStore::content_of(page, ids), page.bytes).value());
    }
    store->close();
    EXPECT_FALSE(store->is_open());
    EXPECT_FALSE(store->find({.parent = {}, .acts = pages[0].acts, .tokens = pages[0].tokens}));
    EXPECT_FALSE(store->wait());
    EXPECT_EQ(store->stats().num_written, 50);
  }
  TestStore store(place_in(folder));
  EXPECT_EQ(count_found(pages, store.read(pages)), 50);
}

TEST(PageStore, CloseDropsWhatTakesTooLong) {
  const TempFolder folder;
  PageStoreOptions options = TestStore::options_of(place_in(folder), 100);
  options.close_within = std::chrono::milliseconds(0);
  const std::vector<TestPage> pages = testing::random_chain(50);
  {
    TestStore store(options);
    std::vector<StoredPage> ids;
    for (const TestPage& page : pages) {
      ids.push_back(store->write(TestStore::content_of(page, ids), page.bytes).value());
    }
    store->close();
    EXPECT_EQ(store->stats().num_written + store->stats().num_dropped, 50);
  }
  TestStore store(options);
  const auto found = store.read(pages);
  for (int i = 0, count = count_found(pages, found); i < 50; ++i) {
    EXPECT_EQ(found[static_cast<size_t>(i)].has_value(), i < count) << "a chain's beginning";
  }
  EXPECT_TRUE(store.warnings.empty());
}

TEST(PageStore, AFullQueueDropsPages) {
  const TempFolder folder;
  PageStoreOptions options = TestStore::options_of(place_in(folder), 10'000);
  options.queue_bytes = 2 * testing::kTestPageBytes;
  TestStore store(options);
  int num_taken = 0;
  const int count = 2000;
  for (int i = 0; i < count; ++i) {
    const TestPage page = testing::random_page(-1);
    num_taken += store->write(TestStore::content_of(page, {}), page.bytes) ? 1 : 0;
    EXPECT_LE(store->stats().num_queued, 2);
  }
  store.settle();
  EXPECT_EQ(store->stats().num_written, num_taken);
  EXPECT_EQ(store->stats().num_dropped, count - num_taken);
  EXPECT_TRUE(store.warnings.empty());
}

TEST(PageStore, KeepsToItsBoundAndForgetsWhatWasUsedLongestAgo) {
  const TempFolder folder;
  const std::vector<TestPage> first = testing::random_chain(6), second = testing::random_chain(6),
                              third = testing::random_chain(5);
  {
    TestStore store(place_in(folder), 12);
    EXPECT_EQ(store->stats().max_pages, 12);
    store.write(first);
    store.write(second);
    store.read(first);
  }
  {
    // What was used last is known after a restart.
    TestStore store(place_in(folder), 12);
    EXPECT_EQ(store.write(third), 5);
    EXPECT_EQ(count_found(third, store.read(third)), 5);
    EXPECT_EQ(count_found(first, store.read(first)), 6);
    EXPECT_EQ(count_found(second, store.read(second)), 1) << "leaves go before their parents";
    EXPECT_EQ(store->stats().num_evicted, 5);
  }
  int64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(place_in(folder))) {
    bytes += static_cast<int64_t>(file.file_size());
  }
  EXPECT_LE(bytes, testing::bytes_for(12));
}

TEST(PageStore, AChainLongerThanTheStoreKeepsItsBeginning) {
  const TempFolder folder;
  TestStore store(place_in(folder), 5);
  const std::vector<TestPage> pages = testing::random_chain(9);
  store.write(pages);
  const auto found = store.read(pages);
  EXPECT_EQ(count_found(pages, found), 5);
  EXPECT_TRUE(found[4].has_value());
}

TEST(PageStore, ASmallerBoundKeepsWhatFits) {
  const TempFolder folder;
  const std::vector<TestPage> pages = testing::random_chain(20);
  TestStore(place_in(folder), 20).write(pages);
  {
    TestStore store(place_in(folder), 7);
    EXPECT_EQ(count_found(pages, store.read(pages)), 7);
    EXPECT_TRUE(store.warnings.empty());
  }
  TestStore store(place_in(folder), 20);
  EXPECT_EQ(store.write(pages), 20);
  EXPECT_EQ(count_found(pages, store.read(pages)), 20);
}

TEST(PageStore, ClearForgetsPagesOnDiskAndThoseThatAreQueued) {
  const TempFolder folder;
  const std::vector<TestPage> pages = testing::random_chain(30);
  {
    TestStore store(place_in(folder));
    store.write({pages.begin(), pages.begin() + 10});
    std::vector<StoredPage> ids;
    for (const TestPage& page : pages) {
      ids.push_back(store->write(TestStore::content_of(page, ids), page.bytes).value());
    }
    Bytes bytes(testing::kTestPageBytes);
    const auto read = store->begin_read(ids[3], bytes);
    store->clear();
    const auto result = store->wait();
    ASSERT_TRUE(result && result->read == read);
    EXPECT_TRUE(!result->is_good || bytes == pages[3].bytes);
    EXPECT_EQ(count_found(pages, store.read(pages)), 0);
    EXPECT_FALSE(store->begin_read(ids[0], bytes));
    EXPECT_FALSE(store->write({.parent = ids[0], .acts = {}, .tokens = pages[0].tokens}, bytes));
    EXPECT_EQ(store.write({pages.begin(), pages.begin() + 4}), 4);
    EXPECT_TRUE(store.warnings.empty());
  }
  TestStore store(place_in(folder));
  EXPECT_EQ(count_found(pages, store.read(pages)), 4);
}

TEST(PageStore, ReadsAreReportedOnceAndInOrder) {
  const TempFolder folder;
  TestStore store(place_in(folder));
  const std::vector<TestPage> pages = testing::random_chain(20);
  store.write(pages);
  EXPECT_FALSE(store->poll());
  EXPECT_FALSE(store->wait());
  std::vector<Bytes> to(20, Bytes(testing::kTestPageBytes));
  std::vector<PageRead> reads;
  std::vector<StoredPage> ids;
  for (size_t i = 0; i < 20; ++i) {
    ids.push_back(store->find(TestStore::content_of(pages[i], ids))->id);
    reads.push_back(store->begin_read(ids[i], to[i]).value());
  }
  for (size_t i = 0; i < 20; ++i) {
    const auto result = i % 2 == 0 ? store->wait() : [&] {
      std::optional<FinishedRead> polled;
      while (!polled) polled = store->poll();
      return polled;
    }();
    EXPECT_EQ(result->read, reads[i]);
    EXPECT_TRUE(result->is_good);
    EXPECT_EQ(to[i], pages[i].bytes);
  }
  EXPECT_FALSE(store->wait());
  EXPECT_EQ(store->begin_read(StoredPage{1 << 20}, to[0]), std::nullopt);
}

TEST(PageStore, ReadsThatWereBegunAreReportedAfterItIsClosed) {
  const TempFolder folder;
  PageStoreOptions options = TestStore::options_of(place_in(folder), 100);
  options.close_within = std::chrono::milliseconds(0);
  TestStore store(options);
  const std::vector<TestPage> pages = testing::random_chain(1);
  store.write(pages);
  const StoredPage page = store->find(TestStore::content_of(pages[0], {}))->id;
  std::vector<Bytes> to(30, Bytes(testing::kTestPageBytes));
  for (Bytes& bytes : to) ASSERT_TRUE(store->begin_read(page, bytes));
  store->close();
  for (const Bytes& bytes : to) {
    const auto result = store->wait();
    ASSERT_TRUE(result);
    EXPECT_TRUE(!result->is_good || bytes == pages[0].bytes);
  }
  EXPECT_FALSE(store->wait());
}

TEST(PageStore, RefusesWhatCannotBeAStore) {
  const TempFolder folder;
  PageStoreOptions options = TestStore::options_of(place_in(folder), 1);
  --options.max_bytes;
  testing::expect_invalid({"kv_disk_memory is", "less than a page of 4 tokens"},
                          [&] { TestStore store(options); });
  options.page_size = 0;
  testing::expect_invalid({"a page has 0 tokens"}, [&] { TestStore store(options); });
  TestStore store(place_in(folder));
  Bytes bytes(testing::kTestPageBytes - 1);
  const std::vector<int32_t> tokens(4), short_tokens(3);
  testing::expect_invalid({"64 bytes, not 63"}, [&] {
    store->write({.parent = {}, .acts = {}, .tokens = tokens}, bytes);
  });
  bytes.resize(64);
  testing::expect_invalid({"4 tokens, not 3"}, [&] {
    store->write({.parent = {}, .acts = {}, .tokens = short_tokens}, bytes);
  });
}

}  // namespace
}  // namespace heddle
