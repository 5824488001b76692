#include "chat/history.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "heddle/core/error.h"

#include "temp_folder.h"

namespace heddle::app {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

TEST(ChatHistory, KeepsLinesForItsOwnerAlone) {
  const testing::TempFolder folder;
  const std::string path = folder.path().string() + "/new/folders/history";
  ChatHistory first(path);
  EXPECT_EQ(first.lines(), Lines{});
  first.add("one");
  ChatHistory beside(path);
  beside.add("two");
  first.add("three");
  EXPECT_EQ(ChatHistory(path).lines(), (Lines{"one", "two", "three"}));
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST(ChatHistory, ALongFileIsCutToItsEnd) {
  const testing::TempFolder folder;
  const std::string path = folder.path().string() + "/history";
  {
    std::ofstream file(path);
    for (int i = 0; i < 2001; ++i) file << i << "\n";
  }
  const ChatHistory history(path);
  ASSERT_EQ(history.lines().size(), 1000u);
  EXPECT_EQ(history.lines().front(), "1001");
  EXPECT_EQ(ChatHistory(path).lines(), history.lines());
  EXPECT_FALSE(fs::exists(path + ".partial"));
}

TEST(ChatHistory, AFileThatCannotBeWrittenIsAnError) {
  const testing::TempFolder folder;
  std::ofstream(folder.path().string() + "/file") << "not a folder";
  ChatHistory history(folder.path().string() + "/file/history");
  EXPECT_THROW(history.add("one"), Error);
  EXPECT_EQ(history.lines(), Lines{});
}

}  // namespace
}  // namespace heddle::app
