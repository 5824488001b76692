#include "engine/drafters/draft_adapters.h"

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/test/model_files.h"
#include "expect_error.h"
#include "model/source/gguf_model.h"

namespace heddle {
namespace {

using namespace std::chrono_literals;

class DraftAdaptersTest : public ::testing::Test {
 protected:
  /// A row of an adapter in a folder of its own, with an adapter for the draft model where `rank`
  /// is not 0.
  RowAdapters row_with(const std::string& name, int64_t rank) {
    auto known = std::make_shared<KnownAdapter>();
    known->path = (folder_.path() / name).string();
    std::filesystem::create_directory(known->path);
    if (rank > 0) {
      std::filesystem::rename(model_.adapter_folder(name + "_draft", rank), known->path + "/draft");
    }
    RowAdapters row;
    row.holds = {known};
    return row;
  }
  /// What the row drafts with, once it has been read.
  static DraftAdapters::Found found(DraftAdapters& adapters, const RowAdapters& row) {
    for (int i = 0; i < 2000; ++i) {
      adapters.begin();
      if (const auto found = adapters.find(row)) return *found;
      std::this_thread::sleep_for(2ms);
    }
    ADD_FAILURE() << "it is never read";
    return {};
  }

  testing::TempFolder folder_;
  testing::RandomModel model_;
  model::GgufModel file_{std::as_bytes(std::span(model_.text())), "tiny.gguf"};
  ModelRunner runner_{Device{},
                      file_,
                      {.max_batch = 3,
                       .num_threads = 1,
                       .page_size = 4,
                       .prefill_chunk = 8,
                       .max_context = 32,
                       .kv_memory = 1 << 20}};
};

TEST_F(DraftAdaptersTest, TheLeastRecentlyUsedGoes) {
  const RowAdapters a = row_with("a", 2), b = row_with("b", 3), c = row_with("c", 4);
  DraftAdapters adapters(runner_, file_, {.max_resident = 2, .max_bytes = 1 << 20});
  const DraftAdapters::Found first = found(adapters, a);
  EXPECT_GT(first.id, 0);
  EXPECT_GE(first.slot, 0);
  EXPECT_EQ(first.num_tokens, testing::RandomModel::kVocabSize);
  EXPECT_NE(found(adapters, b).id, first.id);
  EXPECT_EQ(found(adapters, a).id, first.id);
  EXPECT_EQ(adapters.counts().num_evictions, 0);
  (void)found(adapters, c);  // b goes
  EXPECT_EQ(adapters.counts().num_evictions, 1);
  EXPECT_EQ(found(adapters, a).id, first.id);
  EXPECT_EQ(adapters.counts().num_reads, 3);
  (void)found(adapters, b);
  EXPECT_EQ(adapters.counts().num_reads, 4);
  // Those of one proposal do not make room for each other.
  adapters.begin();
  EXPECT_TRUE(adapters.find(b).has_value());
  EXPECT_TRUE(adapters.find(a).has_value());
  EXPECT_FALSE(adapters.find(c).has_value());
  EXPECT_EQ(adapters.counts().num_evictions, 2);
}

TEST_F(DraftAdaptersTest, OthersDraftWithNone) {
  std::vector<std::string> warnings;
  DraftAdapters adapters(runner_, file_,
                         {.max_bytes = 1 << 20, .on_warning = [&](const std::string& warning) {
                            warnings.push_back(warning);
                          }});
  adapters.begin();
  RowAdapters list = row_with("a", 2);
  list.uses = {{.slot = 0, .scale = 0.5f}};
  EXPECT_EQ(found(adapters, list).id, 0);
  EXPECT_EQ(found(adapters, {}).id, 0);
  EXPECT_EQ(found(adapters, row_with("b", 0)).id, 0);
  EXPECT_TRUE(warnings.empty());
  RowAdapters empty = row_with("c", 0);
  std::filesystem::create_directory(empty.holds[0]->path + "/draft");
  testing::expect_invalid({"/c/draft"}, [&] { adapters.check(*empty.holds[0]); });
  EXPECT_EQ(found(adapters, empty).id, 0);
  EXPECT_EQ(found(adapters, empty).id, 0);
  EXPECT_EQ(warnings.size(), 1U) << "once";
}

/// One whose adapter is gone is dropped, and another at its address is another.
TEST_F(DraftAdaptersTest, WhatIsGoneIsForgotten) {
  DraftAdapters adapters(runner_, file_, {.max_resident = 1, .max_bytes = 1 << 20});
  RowAdapters gone = row_with("a", 2);
  const int64_t first = found(adapters, gone).id;
  gone.holds = {};
  EXPECT_NE(found(adapters, row_with("b", 2)).id, first);
  EXPECT_EQ(adapters.counts().num_evictions, 0);
  EXPECT_EQ(adapters.counts().num_loads, 2);
}

}  // namespace
}  // namespace heddle
