#include "files/open_file.h"

#include <fcntl.h>
#include <span>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "files/reserved_bytes.h"
#include "temp_folder.h"

namespace heddle::files {
namespace {

using testing::expect_invalid;
using testing::TempFolder;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(OpenFile, NamesPathAndReasonWhenItCannotRead) {
  const TempFolder folder;
  const std::string missing = (folder.path() / "missing.gguf").string();
  expect_invalid({"missing.gguf: cannot open: No such file or directory"},
                 [&] { OpenFile file(missing); });
  const std::string path = folder.path().string();
  expect_invalid({path.c_str(), "is a folder"}, [&] { OpenFile file(path); });
  const std::string empty = folder.write("empty.gguf", "");
  expect_invalid({"empty.gguf: the file is empty"}, [&] { OpenFile file(empty); });
  const std::string below = folder.write("file", "x") + "/adapter_config.json";
  expect_invalid({"adapter_config.json: cannot open: Not a directory"},
                 [&] { OpenFile file(below); });
  const std::string pipe = (folder.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_invalid({"pipe: is not a regular file"}, [&] { OpenFile file(pipe); });
}

TEST(OpenFile, ReadsPartsAndSurvivesMoves) {
  const TempFolder folder;
  const std::string path = folder.write("a.bin", std::string(300'000, '.') + "12345");
  OpenFile moved(path);
  const OpenFile file = std::move(moved);
  EXPECT_EQ(file.size(), 300'005u);
  std::vector<std::byte> bytes(300'003);
  file.read(0, bytes);
  EXPECT_EQ(text_of(bytes), std::string(300'000, '.') + "123");
  file.read(300'002, std::span(bytes).first(3));
  EXPECT_EQ(text_of(std::span(bytes).first(3)), "345");
  file.read(300'005, {});
  EXPECT_EQ(file.read_text(300'005).substr(299'999), ".12345");
  expect_invalid({"a.bin: has 300005 bytes, at most 300004 are read"},
                 [&] { (void)file.read_text(300'004); });
  expect_invalid({"a.bin", "read of 3 bytes at 300003, the file has 300005"},
                 [&] { file.read(300'003, std::span(bytes).first(3)); });
}

TEST(OpenFile, OneThatShrinksIsAnError) {
  const TempFolder folder;
  const std::string path = folder.write("a.bin", std::string(300'000, '.') + "12345");
  const OpenFile file(path);
  std::vector<std::byte> bytes(3);
  ASSERT_EQ(::truncate(path.c_str(), 300'000), 0);
  expect_invalid({"a.bin: the file ends at byte 300000, it had 300005: it has changed"},
                 [&] { file.read(299'999, bytes); });
  expect_invalid({"a.bin: the file ends at byte 300000"},
                 [&] { (void)file.read_text(~uint64_t{0}); });
  ASSERT_EQ(::unlink(path.c_str()), 0);  // one that is gone is still what was opened
  file.read(299'997, bytes);
  EXPECT_EQ(text_of(bytes), "...");
}

TEST(OpenFile, TakesADescriptorOver) {
  const TempFolder folder;
  const std::string empty = folder.write("empty", "");
  const OpenFile file(::open(empty.c_str(), O_RDONLY | O_CLOEXEC), "name");
  EXPECT_EQ(file.size(), 0u);
  EXPECT_EQ(file.read_text(10), "");
  expect_invalid({"name: is a folder"}, [&] {
    const OpenFile directory(::open(folder.path().c_str(), O_RDONLY | O_CLOEXEC), "name");
  });
}

TEST(ReservedBytes, AreMemoryOnceTheyAreFilled) {
  ReservedBytes first(10'000, "a");
  const std::byte* const at = first.bytes().data();
  ReservedBytes moved = std::move(first);
  const std::span<std::byte> bytes = moved.fill("a");
  EXPECT_EQ(bytes.data(), at);
  EXPECT_EQ(bytes.size(), 10'000u);
  EXPECT_EQ(bytes[9'999], std::byte{0});
  bytes[9'999] = std::byte{1};
  EXPECT_EQ(moved.bytes()[9'999], std::byte{1});
  testing::expect_error(ErrorCode::kOutOfMemory, {"big: there is no room for its "},
                        [] { const ReservedBytes big(~size_t{0} >> 1, "big"); });
}

}  // namespace
}  // namespace heddle::files
