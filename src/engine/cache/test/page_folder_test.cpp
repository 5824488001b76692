// Folders and files that are not as they were left: another engine's, somebody else's, removed,
// damaged.
#include "engine/cache/page_folder.h"

#include <fcntl.h>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

#include "expect_error.h"
#include "small_sizes.h"
#include "stored_pages.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using testing::Bytes;
using testing::count_found;
using testing::TempFolder;
using testing::TestPage;
using testing::TestStore;

class PageFolderTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string file(const char* name) const { return kv_ + "/" + name; }
  [[nodiscard]] static mode_t mode_of(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  }
  static std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void expect_one_warning(const TestStore& store, std::initializer_list<const char*> parts) {
    ASSERT_EQ(store.warnings.size(), 1u);
    for (const char* part : parts) {
      EXPECT_NE(store.warnings[0].find(part), std::string::npos) << store.warnings[0];
    }
    EXPECT_EQ(store.warnings[0].find('\n'), std::string::npos);
  }
  /// A store that goes on without pages.
  static void expect_closed(TestStore& store) {
    EXPECT_FALSE(store->is_open());
    const std::vector<TestPage> pages = testing::random_chain(3);
    EXPECT_EQ(store.write(pages), 0);
    EXPECT_EQ(count_found(pages, store.read(pages)), 0);
    EXPECT_FALSE(store->begin_read(StoredPage{1}, store_bytes_));
    EXPECT_FALSE(store->wait());
    store->clear();
  }

  TempFolder folder_;
  std::string kv_ = (folder_.path() / "kv").string();
  static inline Bytes store_bytes_ = Bytes(testing::kTestPageBytes);
};

TEST_F(PageFolderTest, IsForThisUserAlone) {
  kv_ = (folder_.path() / "a/b/kv").string();
  { TestStore store(kv_ + "//"); }
  EXPECT_EQ(mode_of(kv_), 0700u);
  for (const char* name : {"heddle_kv_index", "heddle_kv_pages", "heddle_kv_lock"}) {
    EXPECT_EQ(mode_of(file(name)), 0600u) << name;
    ASSERT_EQ(::chmod(file(name).c_str(), 0644), 0);
  }
  { TestStore store(kv_); }
  EXPECT_EQ(mode_of(file("heddle_kv_index")), 0600u) << "what copies make of it is put right";
}

TEST_F(PageFolderTest, RefusesAFolderThatOthersCanWriteTo) {
  ASSERT_EQ(::mkdir(kv_.c_str(), 0700), 0);
  for (const mode_t mode : {0777, 0720, 0702}) {
    ASSERT_EQ(::chmod(kv_.c_str(), mode), 0);
    testing::expect_invalid({"others may write to it (mode 07", "chmod 700 it"},
                            [&] { TestStore store(kv_); });
  }
  ASSERT_EQ(::chmod(kv_.c_str(), 0755), 0);
  EXPECT_TRUE(TestStore(kv_)->is_open());
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(kv_.c_str(), 12345, 0), 0);
    testing::expect_invalid({"belongs to user 12345"}, [&] { TestStore store(kv_); });
  }
}

TEST_F(PageFolderTest, RefusesALinkAndAFile) {
  ASSERT_EQ(::mkdir((kv_ + "2").c_str(), 0700), 0);
  ASSERT_EQ(::symlink("kv2", kv_.c_str()), 0);
  for (const char* end : {"", "/"}) {
    testing::expect_invalid({"kv: is a link"}, [&] { TestStore store(kv_ + end); });
  }
  const std::string path = folder_.write("file", "x");
  testing::expect_invalid({"file: is not a folder"}, [&] { TestStore store(path); });
}

TEST_F(PageFolderTest, FollowsNoLinksInIt) {
  { TestStore store(kv_); }
  const std::string other = folder_.write("other", "precious");
  for (const char* name : {"heddle_kv_index", "heddle_kv_pages", "heddle_kv_lock"}) {
    for (const bool is_hard : {false, true}) {
      ASSERT_EQ(::unlink(file(name).c_str()), 0);
      const auto make = is_hard ? ::link : ::symlink;
      ASSERT_EQ(make(other.c_str(), file(name).c_str()), 0);
      TestStore store(kv_);
      expect_one_warning(store, {name, "pages are not kept on disk"});
      expect_closed(store);
      EXPECT_EQ(read_file(other), "precious");
    }
    ASSERT_EQ(::unlink(file(name).c_str()), 0);
    ASSERT_EQ(::mkfifo(file(name).c_str(), 0600), 0);
    { expect_one_warning(TestStore(kv_), {name, "is not a file of this user's alone"}); }
    ASSERT_EQ(::unlink(file(name).c_str()), 0);
    std::ofstream(file(name), std::ios::binary);
  }
  // A link by the name of the new index is not followed either.
  ASSERT_EQ(::symlink(other.c_str(), file("heddle_kv_index.new").c_str()), 0);
  fs::remove(file("heddle_kv_index"));
  EXPECT_TRUE(TestStore(kv_)->is_open());
  EXPECT_EQ(read_file(other), "precious");
}

TEST_F(PageFolderTest, AFolderThatCannotBeMadeIsOneWarning) {
  TestStore store("/proc/heddle/kv");
  expect_one_warning(store, {"/proc/heddle/kv", "cannot make the folder"});
  expect_closed(store);
  if (::geteuid() == 0) return;  // who may write anywhere
  ASSERT_EQ(::mkdir(kv_.c_str(), 0500), 0);
  TestStore other(kv_);
  expect_one_warning(other, {"cannot open", "Permission denied"});
  expect_closed(other);
}

TEST_F(PageFolderTest, PagesOfAnotherEngineAreRemovedWithOneWarning) {
  const std::vector<TestPage> pages = testing::random_chain(5);
  TestStore(kv_, 100, "a").write(pages);
  {
    TestStore store(kv_, 100, "b");
    expect_one_warning(store, {"heddle_kv_index: was made with model a, this engine has b"});
    EXPECT_EQ(count_found(pages, store.read(pages)), 0);
    EXPECT_EQ(store.write(pages), 5);
  }
  PageStoreOptions options = TestStore::options_of(kv_, 100);
  options.page_size = 16;
  TestStore store(options, "b");
  expect_one_warning(store, {"was made with page_size 4, this engine has 16"});
}

TEST_F(PageFolderTest, AnotherVersionIsRemovedWithOneWarning) {
  const std::vector<TestPage> pages = testing::random_chain(5);
  TestStore(kv_).write(pages);
  std::string index = read_file(file("heddle_kv_index"));
  index[8] = 0;
  std::ofstream(file("heddle_kv_index"), std::ios::binary) << index;
  TestStore store(kv_);
  expect_one_warning(store, {"has version 0 of the format, this heddle has 1"});
  EXPECT_EQ(count_found(pages, store.read(pages)), 0);
  EXPECT_EQ(store.write(pages), 5);
  EXPECT_EQ(count_found(pages, store.read(pages)), 5);
}

TEST_F(PageFolderTest, FilesThatAreRemovedEndTheWriting) {
  for (const char* name : {"heddle_kv_index", "heddle_kv_pages"}) {
    TestStore store(kv_);
    const std::vector<TestPage> pages = testing::random_chain(5);
    store.write({pages.begin(), pages.begin() + 2});
    ASSERT_EQ(::unlink(file(name).c_str()), 0);
    store.write(pages);
    EXPECT_EQ(count_found(pages, store.read(pages)), 2) << "those that were open are still read";
    EXPECT_FALSE(store->poll());
    expect_one_warning(store, {"the files were removed"});
    store->close();
    TestStore next(kv_);
    EXPECT_TRUE(next->is_open());
    EXPECT_EQ(count_found(pages, next.read(pages)), 0);
    EXPECT_EQ(next.write(pages), 5);
  }
}

TEST_F(PageFolderTest, AFileThatIsCutUnderTheStoreLosesPages) {
  TestStore store(kv_);
  const std::vector<TestPage> pages = testing::random_chain(6);
  store.write(pages);
  ASSERT_EQ(::truncate(file("heddle_kv_pages").c_str(), 3 * testing::kTestPageBytes - 1), 0);
  EXPECT_EQ(count_found(pages, store.read(pages)), 2);
  EXPECT_FALSE(store->poll());
  expect_one_warning(store, {"heddle_kv_pages: a page is damaged"});
  EXPECT_EQ(store.write(pages), 6) << "what is lost is written again";
  EXPECT_EQ(count_found(pages, store.read(pages)), 6);
}

/// As a new file: to write over one makes some file systems wait for the disk.
void replace_file(const std::string& path, const std::string& bytes) {
  fs::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

/// One random change of a file.
void damage(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const auto place = [&] {
    return static_cast<size_t>(testing::random_int(0, int64_t(bytes.size()) - 1));
  };
  switch (testing::random_int(0, 5)) {
    case 0: bytes[place()] ^= static_cast<char>(1 << testing::random_int(0, 7)); break;
    case 1: bytes.resize(place()); break;
    case 2: bytes.append(place() + 1, '\x01'); break;
    case 3: {  // a piece of the file in another place
      const size_t from = place(), to = place();
      const std::string piece = bytes.substr(from, place());
      bytes.replace(to, std::min(piece.size(), bytes.size() - to), piece);
      break;
    }
    case 4: {
      const size_t from = place();
      std::fill(bytes.begin() + int64_t(from),
                bytes.begin() + int64_t(std::min(from + place(), bytes.size())), '\0');
      break;
    }
    default:
      for (size_t i = place(), end = std::min(i + 100, bytes.size()); i < end; ++i) {
        bytes[i] = static_cast<char>(testing::random_int(0, 255));
      }
  }
  replace_file(path, bytes);
}

TEST_F(PageFolderTest, DamageNeverGivesOtherBytes) {
  const std::vector<TestPage> pages = testing::random_tree(12);
  { TestStore(kv_).write(pages); }
  const std::string index = read_file(file("heddle_kv_index")),
                    bytes = read_file(file("heddle_kv_pages"));
  const int count = testing::small_or(300, 1'000);
  int num_found = 0, num_warned = 0;
  for (int i = 0; i < count; ++i) {
    const bool in_index = testing::random_int(0, 1) == 0;
    damage(file(in_index ? "heddle_kv_index" : "heddle_kv_pages"));
    if (testing::random_int(0, 3) == 0) damage(file("heddle_kv_index"));
    {
      TestStore store(kv_);
      ASSERT_TRUE(store->is_open());
      const int found = count_found(pages, store.read(pages));
      store->close();
      ASSERT_LE(store.warnings.size(), 2u);  // of either file
      num_found += found;
      num_warned += store.warnings.empty() ? 0 : 1;
      ASSERT_FALSE(HasFailure());
    }
    replace_file(file("heddle_kv_index"), index);
    replace_file(file("heddle_kv_pages"), bytes);
  }
  EXPECT_GT(num_found, count) << "most pages survive most damage";
  EXPECT_GT(num_warned, count / 4);
}

TEST_F(PageFolderTest, AStoreThatWasDamagedGoesOn) {
  const std::vector<TestPage> pages = testing::random_tree(12);
  for (int i = 0; i < testing::small_or(20, 60); ++i) {
    TestStore(kv_).write(pages);
    damage(file(testing::random_int(0, 1) == 0 ? "heddle_kv_index" : "heddle_kv_pages"));
    TestStore store(kv_);
    store.read(pages);
    EXPECT_EQ(store.write(pages), 12);
    ASSERT_EQ(count_found(pages, store.read(pages)), 12);
  }
}

}  // namespace
}  // namespace heddle
