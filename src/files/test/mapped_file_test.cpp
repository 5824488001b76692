#include "files/mapped_file.h"

#include <fstream>
#include <span>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "random.h"
#include "temp_folder.h"

namespace heddle::files {
namespace {

using testing::expect_invalid;
using testing::TempFolder;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Bytes of mapped files that count as memory of this process.
int64_t resident_file_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == "RssFile:" && status >> kib) return kib * 1024;
  }
  return -1;
}

TEST(MappedFile, ShowsTheBytesAndKeepsThemWhenMoved) {
  const TempFolder folder;
  const std::string path = folder.write("a.bin", std::string("one\0two", 7));
  MappedFile first(path);
  const std::byte* data = first.bytes().data();
  MappedFile second(std::move(first));
  EXPECT_EQ(second.bytes().data(), data);
  EXPECT_EQ(second.path(), path);
  MappedFile third(folder.write("b.bin", "other"));
  third = std::move(second);
  EXPECT_EQ(text_of(third.bytes()), std::string("one\0two", 7));
}

TEST(MappedFile, NamesPathAndReasonWhenItCannotRead) {
  const TempFolder folder;
  const std::string missing = (folder.path() / "missing.gguf").string();
  expect_invalid({"missing.gguf: cannot open: No such file or directory"},
                 [&] { MappedFile file(missing); });
  const std::string path = folder.path().string();
  expect_invalid({path.c_str(), "is a folder"}, [&] { MappedFile file(path); });
  const std::string empty = folder.write("empty.gguf", "");
  expect_invalid({"empty.gguf: the file is empty"}, [&] { MappedFile file(empty); });
  const std::string below = folder.write("file", "x") + "/adapter_config.json";
  expect_invalid({"adapter_config.json: cannot open: Not a directory"},
                 [&] { MappedFile file(below); });
  const std::string pipe = (folder.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_invalid({"pipe: is not a regular file"}, [&] { MappedFile file(pipe); });
}

TEST(MappedFile, GivesMemoryBackPieceByPieceAndReadsItAgain) {
  const TempFolder folder;
  std::string content(size_t{16} << 20, '\0');
  for (char& c : content) c = static_cast<char>(testing::rng()());
  const MappedFile file(folder.write("big.bin", content));
  ASSERT_EQ(text_of(file.bytes()), content);  // touches every page
  const int64_t before = resident_file_bytes();
  ASSERT_GT(before, 0);
  // Pieces that end inside pages, as the rows of a tensor do.
  const size_t piece = 100'001;
  for (size_t at = 0; at < content.size(); at += piece) {
    file.release(at, std::min(piece, content.size() - at));
  }
  EXPECT_GT(before - resident_file_bytes(), int64_t{15} << 20);
  EXPECT_EQ(text_of(file.bytes()), content);
}

TEST(MappedFile, ReadsWithoutItsMapping) {
  const TempFolder folder;
  const std::string path = folder.write("a.bin", std::string(300'000, '.') + "12345");
  MappedFile moved(path);
  const MappedFile file = std::move(moved);
  const int64_t before = resident_file_bytes();
  std::vector<std::byte> bytes(300'003);
  file.read(0, bytes);
  EXPECT_EQ(text_of(bytes), std::string(300'000, '.') + "123");
  EXPECT_LT(resident_file_bytes() - before, 100'000);
  file.read(300'002, std::span(bytes).first(3));
  EXPECT_EQ(text_of(std::span(bytes).first(3)), "345");
  file.read(300'005, {});
  expect_invalid({"a.bin", "read of 3 bytes at 300003, the file has 300005"},
                 [&] { file.read(300'003, std::span(bytes).first(3)); });
  ASSERT_EQ(::truncate(path.c_str(), 300'000), 0);
  expect_invalid({"a.bin", "the file ends at byte 300000, it had 300005"},
                 [&] { file.read(299'999, std::span(bytes).first(3)); });
}

TEST(MappedFile, RefusesToReleaseWhatItHasNot) {
  const TempFolder folder;
  const MappedFile file(folder.write("a.bin", "12345"));
  file.release(5, 0);
  file.release(0, 5);
  expect_invalid({"a.bin", "release of 6 bytes at 0, the file has 5"}, [&] { file.release(0, 6); });
  expect_invalid({"at 6"}, [&] { file.release(6, 0); });
  expect_invalid({"release of"}, [&] { file.release(1, ~size_t{0}); });
}

}  // namespace
}  // namespace heddle::files
