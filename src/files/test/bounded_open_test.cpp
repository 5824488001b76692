#include "files/bounded_open.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "temp_folder.h"

namespace heddle::files {
namespace {

namespace fs = std::filesystem;
using testing::expect_invalid;
using testing::TempFolder;

std::string text(const fs::path& path, const FolderBounds& bounds) {
  return open_within(path.string(), bounds).read_text(100);
}

class BoundedOpen : public ::testing::Test {
 protected:
  BoundedOpen() {
    fs::create_directories(root_ / "sub");
    folder_.write("root/file", "inside");
    folder_.write("root/sub/file", "below");
    folder_.write("secret", "outside");
  }
  TempFolder folder_;
  fs::path root_ = fs::canonical(folder_.path()) / "root";
  FolderBounds bounds_ = {root_.string()};
};

TEST_F(BoundedOpen, FollowsLinksThatStayInside) {
  fs::create_symlink("sub/file", root_ / "relative");
  fs::create_symlink(root_ / "file", root_ / "sub/absolute");
  fs::create_directory_symlink("sub", root_ / "folder");
  EXPECT_EQ(text(root_ / "file", bounds_), "inside");
  EXPECT_EQ(text(root_ / "relative", bounds_), "below");
  EXPECT_EQ(text(root_ / "folder/absolute", bounds_), "inside");
  EXPECT_EQ(text(root_ / "folder/../file", bounds_), "inside");
  EXPECT_EQ(text(folder_.path() / "secret", {}), "outside");
  EXPECT_EQ(text(folder_.path() / "secret", {root_.string(), fs::canonical(folder_.path())}),
            "outside");
}

TEST_F(BoundedOpen, RefusesWhatLeadsOut) {
  fs::create_symlink("../secret", root_ / "relative");
  fs::create_symlink(folder_.path() / "secret", root_ / "absolute");
  fs::create_symlink("relative", root_ / "twice");
  fs::create_directory_symlink("..", root_ / "up");
  fs::create_directories(folder_.path() / "root-neighbour");
  folder_.write("root-neighbour/file", "outside");
  for (const char* name :
       {"relative", "absolute", "twice", "up/secret", "../secret", "../root-neighbour/file"}) {
    expect_invalid({name, "is a link that leads out of ", "/root"},
                   [&] { (void)text(root_ / name, bounds_); });
  }
  fs::create_symlink("nothing", root_ / "broken");
  expect_invalid({"broken: cannot open: No such file"},
                 [&] { (void)text(root_ / "broken", bounds_); });
  expect_invalid({"sub: is a folder"}, [&] { (void)text(root_ / "sub", bounds_); });
  folder_.write("root/empty", "");
  expect_invalid({"empty: the file is empty"}, [&] { (void)text(root_ / "empty", bounds_); });
}

/// Whoever changes links while a file is opened gains nothing.
TEST_F(BoundedOpen, WhatIsCheckedIsWhatIsOpened) {
  fs::create_directories(folder_.path() / "out");
  folder_.write("out/file", "outside");
  fs::create_symlink("../root/sub", root_ / "a");
  fs::create_symlink("../out", root_ / "b");
  std::atomic<bool> ends = false;
  std::thread swapper([&] {
    fs::create_symlink("sub", root_ / "link");
    while (!ends) {
      for (const char* to : {"../out", "sub"}) {
        std::error_code error;
        fs::create_symlink(to, root_ / "new", error);
        fs::rename(root_ / "new", root_ / "link", error);
      }
    }
  });
  int num_inside = 0, num_refused = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  while (std::chrono::steady_clock::now() < end) {
    try {
      EXPECT_EQ(text(root_ / "link/file", bounds_), "below");
      ++num_inside;
    } catch (const Error&) {
      ++num_refused;
    }
  }
  ends = true;
  swapper.join();
  EXPECT_GT(num_inside, 0);
  EXPECT_GT(num_refused, 0);
}

}  // namespace
}  // namespace heddle::files
