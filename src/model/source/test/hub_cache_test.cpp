#include "model/source/hub_cache.h"

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "model/adapters/open_adapter.h"
#include "model/source/model_files.h"
#include "small_folder.h"

namespace heddle::model {
namespace {

using testing::expect_invalid;
using testing::SmallFolder;
using testing::TempFolder;

/// An environment variable for the time of a test.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(HubCache, KnowsIdsFromPaths) {
  for (const char* id : {"org/model", "Qwen/Qwen2.5-0.5B", "a_b/c-d.e"}) EXPECT_TRUE(is_hub_id(id));
  for (const char* path : {"model", "a/b/c", "/a", "a/", "./a", "../a", "a/..", "-a/b", "a/b.gguf",
                           "a/b c", "", "/"}) {
    EXPECT_FALSE(is_hub_id(path)) << path;
  }
}

TEST(HubCache, KnowsWhatBelongsToAFolderOfACache) {
  const std::string folder = "/home/u/.cache/huggingface/hub/models--org--lora";
  for (const char* inside :
       {"/snapshots/abc", "/snapshots/abc/adapter_config.json", "/blobs/123"}) {
    EXPECT_EQ(hub_folder_of(folder + inside), folder);
  }
  for (const std::string& other : {folder, folder + "/refs/main", folder + "/snapshots",
                                   std::string("/models--org/snapshots/a"),
                                   std::string("/snapshots/a"), std::string("/"), std::string()}) {
    EXPECT_EQ(hub_folder_of(other), "") << other;
  }
}

TEST(HubCache, FindsAdaptersByName) {
  const TempFolder cache;
  const ScopedVariable variable("HF_HUB_CACHE", cache.path().string());
  const std::string folder = cache.path().string() + "/models--someone--lora";
  std::filesystem::create_directories(folder + "/refs");
  std::filesystem::create_directories(folder + "/snapshots/abc");
  cache.write("models--someone--lora/refs/main", "abc");
  EXPECT_EQ(find_adapter_path("someone/lora"), folder + "/snapshots/abc");
  EXPECT_EQ(find_adapter_path(folder), folder);
  EXPECT_EQ(find_adapter_path("/none/there"), "/none/there");
  expect_invalid({"someone/other: no such file or folder, and nothing of that name in the Hugging "
                  "Face cache ",
                  "hf download someone/other fetches it, or heddle pull someone/other"},
                 [] { (void)find_adapter_path("someone/other"); });
}

TEST(HubCache, TellsHowToFetchWhatIsNotThere) {
  const TempFolder cache;
  const ScopedVariable variable("HF_HUB_CACHE", cache.path().string());
  expect_invalid({"loom/tiny: no such file or folder", cache.path().c_str(),
                  "hf download loom/tiny fetches it, or heddle pull loom/tiny"},
                 [] { (void)open_model("loom/tiny"); });
}

TEST(HubCache, OpensTheSnapshotOfMain) {
  const TempFolder cache;
  const ScopedVariable variable("HF_HUB_CACHE", cache.path().string());
  const std::filesystem::path folder = cache.path() / "models--loom--tiny";
  std::filesystem::create_directories(folder / "refs");
  std::filesystem::create_directories(folder / "snapshots");
  const SmallFolder small;
  small.write_all();
  std::filesystem::create_directory_symlink(small.path(), folder / "snapshots" / "abc123");
  cache.write("models--loom--tiny/refs/main", "abc123\n");
  EXPECT_EQ(find_in_hub_cache("loom/tiny"), (folder / "snapshots" / "abc123").string());
  EXPECT_EQ(open_model("loom/tiny")->config().family, "qwen2");

  cache.write("models--loom--tiny/refs/main", "../../other");
  expect_invalid({"refs/main: holds '../../other', expected the name of a commit"},
                 [] { (void)find_in_hub_cache("loom/tiny"); });
  cache.write("models--loom--tiny/refs/main", "def456");
  expect_invalid({"loom/tiny", "hf download"}, [] { (void)find_in_hub_cache("loom/tiny"); });
}

}  // namespace
}  // namespace heddle::model
