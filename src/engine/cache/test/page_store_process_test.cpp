// Several processes, processes that end at any moment, and a disk that is full.
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "small_sizes.h"
#include "stored_pages.h"

namespace heddle {
namespace {

using testing::count_found;
using testing::TempFolder;
using testing::TestPage;
using testing::TestStore;

/// Runs `body` in a process of its own, which ends with 0 where it returns true.
template <class Body>
pid_t in_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    bool is_good = false;
    try {
      is_good = body() && !::testing::Test::HasFailure();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
    }
    std::_Exit(is_good ? 0 : 1);
  }
  return child;
}

int status_of(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

TEST(PageStoreProcesses, ASecondOneGoesWithoutAndWarnsOnce) {
  const TempFolder folder;
  const std::string kv = (folder.path() / "kv").string();
  const std::vector<TestPage> pages = testing::random_chain(5);
  const auto is_refused = [&] {
    TestStore second(kv);
    return !second->is_open() && second.write(pages) == 0 && second.warnings.size() == 1 &&
           second.warnings[0].find("another process keeps its pages there") != std::string::npos;
  };
  {
    TestStore first(kv);
    first.write(pages);
    EXPECT_TRUE(is_refused());
    EXPECT_EQ(status_of(in_child(is_refused)), 0);
    EXPECT_EQ(count_found(pages, first.read(pages)), 5);
  }
  EXPECT_EQ(status_of(in_child([&] {
              TestStore next(kv);
              return count_found(pages, next.read(pages)) == 5;
            })),
            0);
}

TEST(PageStoreProcesses, OneThatIsKilledLeavesAFolderThatOpens) {
  const TempFolder folder;
  const std::string kv = (folder.path() / "kv").string();
  const std::vector<TestPage> pages = testing::random_tree(60);
  int64_t num_found = 0;
  for (int i = 0; i < testing::small_or(15, 40); ++i) {
    const pid_t child = in_child([&] {
      TestStore store(kv, 40);  // so that slots are used again
      while (true) store.write(pages);
      return true;
    });
    std::this_thread::sleep_for(std::chrono::microseconds(testing::random_int(0, 20'000)));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    EXPECT_TRUE(WIFSIGNALED(status_of(child)));
    TestStore store(kv, 40);
    ASSERT_TRUE(store->is_open());
    num_found += count_found(pages, store.read(pages));
    EXPECT_EQ(store->stats().num_damaged, 0);
    // A write of a record that spans two pages of the system may have been cut between them.
    for (const std::string& warning : store.warnings) {
      EXPECT_NE(warning.find("1 records are damaged"), std::string::npos) << warning;
    }
  }
  EXPECT_GT(num_found, 0);
}

/// Files have at most so many bytes for the length of the object: what a full disk is like.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    set({.rlim_cur = bytes, .rlim_max = before_.rlim_max});
  }
  ~FileLimit() { set(before_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  static void set(const rlimit& limit) { ::setrlimit(RLIMIT_FSIZE, &limit); }
  rlimit before_{};
};

TEST(PageStoreProcesses, AFullDiskIsOneWarning) {
  EXPECT_EQ(
      status_of(in_child([] {
        const TempFolder folder;
        PageStoreOptions options = TestStore::options_of((folder.path() / "kv").string(), 200);
        options.write_again_after = std::chrono::milliseconds(1);
        TestStore store(options);
        const std::vector<TestPage> pages = testing::random_chain(150);
        {
          const FileLimit limit(100 * testing::kTestPageBytes + 10);
          store.write(pages);
          EXPECT_EQ(count_found(pages, store.read(pages)), store->stats().num_written);
          EXPECT_LE(store->stats().num_written, 100);
          EXPECT_GT(store->stats().num_written, 0);
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
          store.write(pages);
          EXPECT_FALSE(store->poll());
          EXPECT_EQ(store.warnings.size(), 1u);
          EXPECT_NE(store.warnings.at(0).find("cannot write: File too large"), std::string::npos);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        EXPECT_EQ(store.write(pages), 150) << "there is room again";
        EXPECT_EQ(count_found(pages, store.read(pages)), 150);
        EXPECT_EQ(store.warnings.size(), 1u);
        return true;
      })),
      0);
}

TEST(PageStoreProcesses, APageThatWasWrittenInPartIsNotFound) {
  EXPECT_EQ(status_of(in_child([] {
              constexpr int64_t kLargePage = 64 << 10;  // larger than the index
              const TempFolder folder;
              PageStoreOptions options;
              options.dir = (folder.path() / "kv").string();
              options.page_bytes = kLargePage;
              options.page_size = testing::kTestPageSize;
              options.max_bytes = testing::bytes_for(1, kLargePage);
              std::vector<TestPage> pages;
              for (int i = 0; i < 2; ++i) pages.push_back(testing::random_page(-1, kLargePage));
              {
                TestStore store(options);
                store.write({pages[0]});
                EXPECT_EQ(count_found(pages, store.read(pages)), 1);
                const FileLimit limit(kLargePage / 2);
                store.write({pages[1]});
                store->close();
                EXPECT_EQ(store.warnings.size(), 1u);
              }
              TestStore store(options);
              EXPECT_EQ(count_found(pages, store.read(pages)), 0);
              EXPECT_EQ(store->stats().num_damaged, 0) << "its slot is known to be free";
              EXPECT_TRUE(store.warnings.empty());
              return true;
            })),
            0);
}

TEST(PageStoreProcesses, AFolderThatIsFullFromTheStartIsOneWarning) {
  EXPECT_EQ(status_of(in_child([] {
              const TempFolder folder;
              const FileLimit limit(100);
              TestStore store((folder.path() / "kv").string());
              EXPECT_FALSE(store->is_open());
              EXPECT_EQ(store.warnings.size(), 1u);
              EXPECT_NE(store.warnings.at(0).find("cannot write"), std::string::npos);
              EXPECT_EQ(store.write(testing::random_chain(3)), 0);
              return true;
            })),
            0);
}

}  // namespace
}  // namespace heddle
