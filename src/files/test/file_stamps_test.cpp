#include "files/file_stamps.h"

#include <atomic>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "temp_folder.h"

namespace heddle::files {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST(FileStamps, TellWhoseFileItIsAndWhetherItHasChanged) {
  const testing::TempFolder folder;
  const std::vector<std::string> paths = {folder.write("a", "one"), folder.write("b", "two"),
                                          (folder.path() / "none").string()};
  const FileStamps before = stamps_of(paths);
  ASSERT_EQ(before.size(), 2u);
  EXPECT_EQ(before[0].name, paths[0]);
  EXPECT_EQ(before[0].stamp.size, 3);
  EXPECT_EQ(stamps_of(paths), before);
  EXPECT_FALSE(are_settled(before, file_time_now()));
  EXPECT_TRUE(are_settled({}, file_time_now()));
  // Another file of the same size in its place.
  std::filesystem::rename(folder.write("c", "new"), paths[0]);
  const FileStamps after = stamps_of(paths);
  EXPECT_NE(after[0].stamp.inode, before[0].stamp.inode);
  EXPECT_EQ(after[1], before[1]);
  folder.write("b", "longer");
  EXPECT_NE(stamps_of(paths)[1], before[1]);
}

TEST(FileStamps, AreSettledAHundredMillisecondsLater) {
  const testing::TempFolder folder;
  const std::vector<std::string> paths = {folder.write("a", "one")};
  const FileStamps settled =
      wait_until_settled("a", milliseconds(2000), [&] { return stamps_of(paths); });
  EXPECT_TRUE(are_settled(settled, file_time_now()));
  EXPECT_EQ(settled, stamps_of(paths));
  // Those of an old file are returned at once.
  const auto begin = steady_clock::now();
  (void)wait_until_settled("a", milliseconds(0), [&] { return stamps_of(paths); });
  EXPECT_LT(steady_clock::now() - begin, milliseconds(90));
}

/// As of another machine whose clock runs ahead.
TEST(FileStamps, OfTheFutureCountOnceTheyStay) {
  FileStamps future = {{"a", {.size = 1, .changed_ns = file_time_now() + 3'600'000'000'000}}};
  const auto begin = steady_clock::now();
  EXPECT_EQ(wait_until_settled("a", milliseconds(2000), [&] { return future; }), future);
  EXPECT_GE(steady_clock::now() - begin, milliseconds(95));
}

TEST(FileStamps, OneThatIsWrittenOnAndOnIsAnError) {
  const testing::TempFolder folder;
  const std::vector<std::string> paths = {folder.write("a", "one")};
  std::atomic<bool> ends = false;
  std::thread writer([&] {
    for (size_t i = 1; !ends; ++i) {
      folder.write("a", std::string(i, 'x'));
      std::this_thread::sleep_for(milliseconds(5));
    }
  });
  testing::expect_invalid({"adapter: is being written to; load it again"}, [&] {
    (void)wait_until_settled("adapter", milliseconds(300), [&] { return stamps_of(paths); });
  });
  ends = true;
  writer.join();
  EXPECT_EQ(wait_until_settled("a", milliseconds(2000), [&] { return stamps_of(paths); }),
            stamps_of(paths));
}

}  // namespace
}  // namespace heddle::files
