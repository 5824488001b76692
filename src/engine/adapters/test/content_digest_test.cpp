#include <filesystem>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "engine/adapters/adapter_store.h"
#include "engine/face/engine_options.h"
#include "engine/rows/sequence.h"
#include "engine/test/model_files.h"
#include "engine/test/test_device.h"
#include "model/adapters/contents/adapter_contents.h"
#include "model/adapters/open_adapter.h"
#include "model/source/gguf_model.h"

// The digests that an engine has of the weights in its memory.

namespace heddle {
namespace {

namespace fs = std::filesystem;

class ContentDigestTest : public ::testing::Test {
 protected:
  ContentDigestTest() {
    (void)model_.adapter_folder("first", 2);
    (void)model_.adapter_folder("second", 2);
    fs::copy(place("first"), place("copy"));
  }

  [[nodiscard]] std::string place(const std::string& name) const { return folder_ + "/" + name; }
  /// Of what the files have now.
  [[nodiscard]] Digest of_files(const std::string& name) const {
    const auto opened = model::open_adapter(place(name), file_.config());
    opened->load();
    return model::AdapterContents(*opened).digest();
  }
  /// With room for this many adapters on the device, and in host memory where it has copies there.
  [[nodiscard]] AdapterStore store(int64_t num_adapters, int64_t num_copies) {
    const auto opened = model::open_adapter(place("first"), file_.config());
    const int64_t bytes_of_one = std::as_const(runner_).adapters().num_bytes(*opened);
    return {runner_,
            file_,
            text_,
            {.folders = {folder_},
             .bounds = {.memory_bytes = num_adapters * bytes_of_one},
             .host_memory = num_copies * bytes_of_one}};
  }
  /// Has a row run with the adapter.
  static void run(AdapterStore& store, const AdapterHold& adapter) {
    Sequence row;
    row.adapters.holds = {adapter};
    store.reserve();
    store.wait_and_take(row);
  }
  static AdapterHold run(AdapterStore& store, const std::string& name) {
    AdapterHold adapter = store.find(name);
    run(store, adapter);
    return adapter;
  }

  testing::RandomModel model_;
  const std::string folder_ = fs::path(model_.path()).parent_path().string();
  const model::GgufModel file_{folder_ + "/tiny.gguf"};
  const RowText text_ = text_of_model(file_, "");
  ModelRunner runner_{device_of({.device = testing::test_device()}),
                      file_,
                      {.max_batch = 2,
                       .num_threads = 2,
                       .page_size = 4,
                       .prefill_chunk = 8,
                       .max_context = 32,
                       .kv_memory = 1 << 20}};
};

TEST_F(ContentDigestTest, TwoNamesOfOneContentHaveOne) {
  AdapterStore store = this->store(4, 4);
  const AdapterHold first = run(store, "first"), copy = run(store, "copy");
  EXPECT_EQ(first->data.digest, of_files("first"));
  EXPECT_EQ(copy->data.digest, first->data.digest);
  EXPECT_NE(run(store, "second")->data.digest, first->data.digest);
  auto staged = store.stage(place("copy"));
  store.check(staged);
  EXPECT_EQ(staged.identity.digest, first->data.digest);
  (void)store.add("third", std::move(staged), false);
  EXPECT_EQ(run(store, "third")->data.digest, first->data.digest);
}

TEST_F(ContentDigestTest, OtherFilesUnderANameHaveAnother) {
  AdapterStore store = this->store(4, 4);
  const AdapterHold before = run(store, "first");
  const Digest of_first = before->data.digest;
  (void)model_.adapter_folder("first", 2);
  const AdapterHold after = run(store, "first");
  EXPECT_EQ(after->data.digest, of_files("first"));
  EXPECT_NE(after->data.digest, of_first);
  EXPECT_EQ(before->data.digest, of_first) << "of rows that still run";
}

TEST_F(ContentDigestTest, ComesAndGoesWithTheWeights) {
  AdapterStore store = this->store(1, 1);
  const AdapterHold first = store.find("first"), second = store.find("second");
  EXPECT_EQ(first->data.digest, Digest());
  const Digest of_first = of_files("first"), of_second = of_files("second");
  for (int i = 0; i < 3; ++i) {
    run(store, first);
    EXPECT_EQ(first->data.digest, of_first);
    EXPECT_EQ(second->data.digest, Digest());
    run(store, second);
    EXPECT_EQ(second->data.digest, of_second);
    EXPECT_EQ(first->data.digest, Digest());
  }
}

/// As long as there is a copy in host memory, from which it comes back without a read.
TEST_F(ContentDigestTest, StaysWithACopyInHostMemory) {
  if (testing::is_on_cpu()) GTEST_SKIP() << "adapters are in host memory";
  AdapterStore store = this->store(1, 2);
  const AdapterHold first = run(store, "first");
  const Digest of_first = of_files("first");
  const AdapterHold second = run(store, "second");
  EXPECT_EQ(first->data.stage(), AdapterStage::kStaged);
  EXPECT_EQ(first->data.digest, of_first);
  run(store, first);
  EXPECT_EQ(first->data.digest, of_first);
  EXPECT_EQ(store.tiers().counts().num_reads, 2);
}

}  // namespace
}  // namespace heddle
