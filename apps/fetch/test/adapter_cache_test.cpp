#include "fetch/adapter_cache.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fetch/fetch_error.h"
#include "fetch/test/made_source.h"
#include "temp_folder.h"

namespace heddle::fetch {
namespace {

namespace fs = std::filesystem;
using heddle::testing::TempFolder;

constexpr int64_t kConfigBytes = 10, kWeightBytes = 90;  // 100 an adapter
const std::stop_token kGoOn;

int64_t bytes_below(const fs::path& folder) {
  int64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  }
  return bytes;
}

class AdapterCacheTest : public ::testing::Test {
 protected:
  AdapterCacheTest() {
    source_.contents = {{"adapter_config.json", std::string(kConfigBytes, '{')},
                        {"adapter_model.safetensors", std::string(kWeightBytes, 'w')},
                        {"training_args.bin", "a pickle"}};
  }
  AdapterLease fetch(AdapterCache& cache, const std::string& name) {
    return cache.fetch(source_, source_.list(name, "", kGoOn), name, kGoOn);
  }
  std::optional<FetchFault> fault(AdapterCache& cache, const std::string& name) {
    try {
      (void)fetch(cache, name);
    } catch (const FetchError& error) {
      return error.fault();
    }
    return std::nullopt;
  }
  [[nodiscard]] std::string path() const { return (folder_.path() / "cache").string(); }
  [[nodiscard]] bool is_there(const std::string& name) const {
    return fs::exists(path() + "/adapters/" + name);
  }

  TempFolder folder_;
  MadeSource source_;
};

TEST_F(AdapterCacheTest, HasWhatItFetchedWhole) {
  AdapterCache cache(path(), 1000);
  EXPECT_EQ(cache.find("a"), nullptr);
  const AdapterLease fetched = fetch(cache, "a");
  EXPECT_EQ(fetched->num_bytes, 100);
  EXPECT_EQ(cache.find("a"), fetched);
  EXPECT_TRUE(fs::exists(cache.folder() + "/a/adapter_model.safetensors"));
  EXPECT_FALSE(fs::exists(cache.folder() + "/a/training_args.bin"));
  EXPECT_EQ(cache.num_bytes(), 100);
  const size_t num_reads = source_.reads.size();
  EXPECT_EQ(fetch(cache, "a"), fetched);
  EXPECT_EQ(source_.reads.size(), num_reads);
}

TEST_F(AdapterCacheTest, TheLeastRecentlyUsedMakesRoom) {
  AdapterCache cache(path(), 250);
  (void)fetch(cache, "a");
  (void)fetch(cache, "b");
  (void)cache.find("a");
  (void)fetch(cache, "c");
  EXPECT_TRUE(is_there("a") && is_there("c"));
  EXPECT_FALSE(is_there("b"));
  EXPECT_EQ(cache.find("b"), nullptr);
  EXPECT_EQ(cache.num_bytes(), 200);
}

TEST_F(AdapterCacheTest, NoneThatIsHeldGoes) {
  AdapterCache cache(path(), 250);
  AdapterLease a = fetch(cache, "a");
  const AdapterLease b = fetch(cache, "b");
  EXPECT_EQ(fault(cache, "c"), FetchFault::kFull);
  EXPECT_EQ(cache.num_bytes(), 200);
  a = nullptr;
  EXPECT_EQ(fault(cache, "c"), std::nullopt);
  EXPECT_TRUE(is_there("b"));
  EXPECT_FALSE(is_there("a"));
}

TEST_F(AdapterCacheTest, WhatNeverFitsIsRefusedBeforeItComes) {
  AdapterCache cache(path(), 150);
  (void)fetch(cache, "a");
  source_.contents["adapter_model.safetensors"] = std::string(200, 'w');
  const size_t num_reads = source_.reads.size();
  EXPECT_EQ(fault(cache, "b"), FetchFault::kFull);
  EXPECT_EQ(source_.reads.size(), num_reads);
  EXPECT_NE(cache.find("a"), nullptr);
  EXPECT_EQ(cache.num_bytes(), 100);
  EXPECT_EQ(bytes_below(path()), 100);
}

TEST_F(AdapterCacheTest, WhatFailedCountsUntilItGoesOnOrMakesRoom) {
  AdapterCache cache(path(), 150);
  source_.cut_after = 0;
  EXPECT_EQ(fault(cache, "a"), FetchFault::kUnavailable);
  source_.cut_after = -1;
  std::ofstream(path() + "/incoming/a/adapter_config.json.part") << "{{{";
  EXPECT_EQ(fault(cache, "a"), std::nullopt);
  EXPECT_EQ(source_.reads.back(), 0);  // of the weights; the configuration went on
  EXPECT_EQ(cache.num_bytes(), 100);

  source_.contents["adapter_model.safetensors"][3] = 'x';
  RemoteListing listing = source_.list("b", "", kGoOn);
  source_.contents["adapter_model.safetensors"][3] = 'w';
  EXPECT_THROW((void)cache.fetch(source_, listing, "b", kGoOn), FetchError);
  EXPECT_EQ(cache.num_bytes(), bytes_below(path()));
  EXPECT_EQ(cache.num_bytes(), kConfigBytes);  // "a" has made room, and the weights were wrong
  EXPECT_EQ(fault(cache, "c"), std::nullopt);
  EXPECT_EQ(cache.num_bytes(), 110);
}

TEST_F(AdapterCacheTest, ALaterProgramFindsItAndItsKeys) {
  {
    AdapterCache cache(path(), 1000);
    cache.note("main", fetch(cache, "a"));
    cache.note("v2", fetch(cache, "a"));
    cache.note("v2", fetch(cache, "b"));
    EXPECT_THROW(AdapterCache(path(), 1000), FetchError);  // one program at a time
  }
  fs::create_directory_symlink("/etc", path() + "/adapters/link");
  AdapterCache cache(path(), 1000);
  EXPECT_EQ(cache.num_bytes(), bytes_below(path()));
  ASSERT_NE(cache.noted("main"), nullptr);
  EXPECT_EQ(cache.noted("main")->name, "a");
  ASSERT_NE(cache.noted("v2"), nullptr);
  EXPECT_EQ(cache.noted("v2")->name, "b");
  EXPECT_EQ(cache.noted("v3"), nullptr);
  EXPECT_EQ(cache.find("link"), nullptr);
}

TEST_F(AdapterCacheTest, ASmallerBoundHoldsFromTheStart) {
  {
    AdapterCache cache(path(), 1000);
    for (const char* name : {"a", "b", "c"}) (void)fetch(cache, name);
  }
  const AdapterCache cache(path(), 150);
  EXPECT_EQ(cache.num_bytes(), 100);
  EXPECT_EQ(bytes_below(path()), 100);
}

TEST_F(AdapterCacheTest, CallsForOneNameTakeTurns) {
  AdapterCache cache(path(), 1000);
  std::vector<std::jthread> threads;
  std::vector<AdapterLease> fetched(8);
  for (AdapterLease& lease : fetched) {
    threads.emplace_back([&] { lease = fetch(cache, "a"); });
  }
  threads.clear();
  for (const AdapterLease& lease : fetched) EXPECT_EQ(lease, fetched.front());
  EXPECT_EQ(source_.reads.size(), 2u);  // its two files
  EXPECT_EQ(cache.num_bytes(), 100);
}

TEST_F(AdapterCacheTest, FollowsNoLink) {
  const TempFolder elsewhere;
  fs::create_directories(path());
  fs::create_directory_symlink(elsewhere.path(), path() + "/incoming");
  EXPECT_THROW(AdapterCache(path(), 1000), FetchError);
  fs::remove(path() + "/incoming");
  AdapterCache cache(path(), 1000);
  fs::create_directory_symlink(elsewhere.path(), path() + "/incoming/a");
  EXPECT_EQ(fault(cache, "a"), FetchFault::kRefused);
  EXPECT_TRUE(fs::is_empty(elsewhere.path()));
}

}  // namespace
}  // namespace heddle::fetch
