#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/cache/page_store.h"
#include "random.h"
#include "temp_folder.h"

namespace heddle::testing {

using Bytes = std::vector<std::byte>;

inline Bytes random_bytes(size_t count) {
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_int(0, 255));
  return bytes;
}

/// Small pages: what is promised does not depend on their size.
inline constexpr int kTestPageSize = 4;
inline constexpr int64_t kTestPageBytes = 64;

/// A page of a test's own list, with the place of its parent in it; -1: the root.
struct TestPage {
  int parent = -1;
  Digest acts;
  std::vector<int32_t> tokens;
  Bytes bytes;
};

inline TestPage random_page(int parent, size_t num_bytes = kTestPageBytes) {
  TestPage page{.parent = parent, .acts = {}, .tokens = {}, .bytes = random_bytes(num_bytes)};
  page.acts = {.low = static_cast<uint64_t>(random_int(0, 1)), .high = 7};
  for (int i = 0; i < kTestPageSize; ++i) {
    page.tokens.push_back(static_cast<int32_t>(random_int(0, 1 << 30)));
  }
  return page;
}

/// `count` pages, each a child of the one before.
inline std::vector<TestPage> random_chain(int count) {
  std::vector<TestPage> pages;
  for (int i = 0; i < count; ++i) pages.push_back(random_page(i - 1));
  return pages;
}

/// Pages each of which has any earlier one, or the root, for its parent.
inline std::vector<TestPage> random_tree(int count) {
  std::vector<TestPage> pages;
  for (int i = 0; i < count; ++i) {
    pages.push_back(random_page(static_cast<int>(random_int(-1, i - 1))));
  }
  return pages;
}

/// What max_bytes has to be for so many of the small pages.
inline int64_t bytes_for(int64_t num_pages, int64_t page_bytes = kTestPageBytes) {
  const auto record = static_cast<int64_t>(record_bytes(kTestPageSize));
  return static_cast<int64_t>(header_bytes(0)) + num_pages * (record + page_bytes);
}

/// A store of small pages with what it has warned of.
class TestStore {
 public:
  explicit TestStore(const std::string& dir, int64_t num_pages = 100,
                     const std::string& model = "m1")
      : TestStore(options_of(dir, num_pages), model) {}
  explicit TestStore(const PageStoreOptions& options, const std::string& model = "m1")
      : store_(options, identity_of(model),
               [this](const std::string& text) { warnings.push_back(text); }) {}

  static PageStoreOptions options_of(const std::string& dir, int64_t num_pages) {
    PageStoreOptions options;
    options.dir = dir;
    options.max_bytes = bytes_for(num_pages);
    options.page_bytes = kTestPageBytes;
    options.page_size = kTestPageSize;
    return options;
  }
  static PageIdentity identity_of(const std::string& model) {
    PageIdentity identity;
    identity.add("model", model);
    return identity;
  }

  PageStore* operator->() { return &store_; }

  /// Writes all pages, parents first, and waits until that is done; returns how many were taken.
  int write(const std::vector<TestPage>& pages) {
    std::vector<StoredPage> ids;
    int num_taken = 0;
    for (const TestPage& page : pages) {
      const std::optional<StoredPage> id = store_.write(content_of(page, ids), page.bytes);
      ids.push_back(id.value_or(StoredPage{~uint64_t{0}}));
      num_taken += id ? 1 : 0;
    }
    settle();
    return num_taken;
  }
  /// Waits until nothing is queued.
  void settle() {
    while (store_.stats().num_queued > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  /// What the store has of each page, found from the root on; nothing where it does not have it.
  std::vector<std::optional<Bytes>> read(const std::vector<TestPage>& pages) {
    std::vector<std::optional<Bytes>> found(pages.size());
    std::vector<StoredPage> ids;
    std::vector<std::pair<PageRead, size_t>> reads;
    for (size_t i = 0; i < pages.size(); ++i) {
      const auto place = store_.find(content_of(pages[i], ids));
      const bool is_readable = place && place->is_readable;
      ids.push_back(is_readable ? place->id : StoredPage{~uint64_t{0}});
      if (!is_readable) continue;
      found[i].emplace(pages[i].bytes.size());
      const auto read = store_.begin_read(place->id, *found[i]);
      if (read) reads.emplace_back(*read, i);
      if (!read) found[i].reset();
    }
    for (const auto& [read, i] : reads) {
      const auto result = store_.wait();
      EXPECT_TRUE(result && result->read == read);
      if (!result || !result->is_good) found[i].reset();
    }
    return found;
  }

  static PageContent content_of(const TestPage& page, const std::vector<StoredPage>& ids) {
    return {.parent = page.parent < 0 ? StoredPage::kRoot : ids[static_cast<size_t>(page.parent)],
            .acts = page.acts,
            .tokens = page.tokens};
  }

  std::vector<std::string> warnings;

 private:
  PageStore store_;
};

/// How many pages were found; each has the bytes that it was written with.
inline int count_found(const std::vector<TestPage>& pages,
                       const std::vector<std::optional<Bytes>>& found) {
  int count = 0;
  for (size_t i = 0; i < pages.size(); ++i) {
    if (!found[i]) continue;
    EXPECT_TRUE(*found[i] == pages[i].bytes) << "page " << i;
    ++count;
  }
  return count;
}

}  // namespace heddle::testing
