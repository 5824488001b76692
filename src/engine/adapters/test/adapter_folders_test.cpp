// EngineOptions::fetched_adapter_dir next to adapter_dir.
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "engine/adapters/test/adapter_folder_case.h"
#include "expect_error.h"
#include "temp_folder.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using testing::AdapterFolderTest;

TEST_F(AdapterFolderTest, ASecondFolderHasWhatTheFirstDoesNot) {
  write("a");
  write("b");
  const testing::TempFolder fetched;
  fs::rename(folder_.path() / "b", fetched.path() / "b");
  const Completion want_a = alone("a");
  write("c");
  fs::create_directories(fetched.path() / "a");  // the first folder goes first
  fs::rename(folder_.path() / "c", fetched.path() / "c");
  fs::create_directory_symlink(folder_.path() / "first", fetched.path() / "link");
  (void)alone_.replace_adapter("it", (fetched.path() / "b").string());
  const Completion want_b = answer(alone_, "it");

  Engine engine = model_.engine({.max_batch = 4,
                                 .adapter_dir = folder_.path().string(),
                                 .fetched_adapter_dir = fetched.path().string()});
  testing::expect_same(answer(engine, "a"), want_a, "a");
  testing::expect_same(answer(engine, "b"), want_b, "b");
  EXPECT_NE(answer(engine, "d").error.find("has no adapter of this name"), std::string::npos);
  EXPECT_NE(answer(engine, "link").error.find("leads out of"), std::string::npos);

  Engine alone = model_.engine({.fetched_adapter_dir = fetched.path().string()});
  testing::expect_same(answer(alone, "b"), want_b, "b");
  EXPECT_GT(alone.options().adapter_memory, 0);
  testing::expect_invalid({"/none", "is not a folder of adapters"},
                          [&] { (void)model_.engine({.fetched_adapter_dir = "/none"}); });
}

}  // namespace
}  // namespace heddle
