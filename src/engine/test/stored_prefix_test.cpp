// Pages that outlive their engine: what a later one finds in the folder has the bits of a cold run,
// and whatever happens to the folder, so has what it does not find.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/face/made_engine.h"
#include "engine/test/tiny_adapter.h"
#include "engine/test/tiny_model.h"
#include "expect_error.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
namespace llama = model::llama;
using model::ref::Llama;

/// The folder of the CPU, and the one below the host memory of a GPU: on the CPU both, since an
/// engine there can be made as on a GPU.
class StoredPrefixes : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!testing::is_on_cpu() && !is_as_on_gpu()) GTEST_SKIP() << "of the CPU alone";
  }
  static bool is_as_on_gpu() { return GetParam(); }
  Engine engine_with(EngineOptions options) {
    options.page_size = 4;
    if (options.kv_type.empty()) options.kv_type = kv_type;
    options.model_path = model.path();
    options.num_threads = 2;
    options.device = testing::test_device();
    options.on_warning = [this](const std::string& text) { warnings.push_back(text); };
    Engine made = open_engine(options, {.as_on_gpu = is_as_on_gpu()});
    (void)made.add_adapter("a", a.folder.path().string());
    return made;
  }
  Engine stored_engine(EngineOptions options = {}) {
    options.kv_cache_dir = dir();
    options.kv_disk_memory = int64_t{64} << 20;
    return engine_with(options);
  }
  [[nodiscard]] std::string dir() const { return (folder.path() / "pages").string(); }
  /// Tokens of the prompt that were found; the answer is that of a cold run.
  int64_t run(Engine& engine, const Request& request) {
    std::vector<testing::Outcome> outcomes(1);  // pages may still be read when it has ended
    const RequestId id = engine.submit(request);
    while (engine.num_unfinished() > 0) testing::take(engine.step(), id, outcomes);
    const Completion& answer = outcomes[0].completion;
    testing::expect_same(answer, testing::run_all(cold(), {request}).front(), "from the folder");
    return answer.cached_tokens;
  }
  /// One that computes all of every prompt.
  Engine& cold() {
    if (!cold_) cold_.emplace(engine_with({.max_batch = 1, .prefix_cache = false}));
    return *cold_;
  }
  static Request request_of(std::vector<int32_t> tokens, const std::string& adapter = "") {
    Request request = testing::endless_request(std::move(tokens), 6);
    request.adapter = adapter;
    return request;
  }

  Llama base = model::random_llama(testing::tiny_config(), true);
  testing::TinyAdapter a{base, 3, {llama::kQ, llama::kV, llama::kDown}};
  testing::TinyModel model{base};
  testing::TempFolder folder;
  const std::string kv_type = testing::any_kv_type();
  std::vector<std::string> warnings;

 private:
  std::optional<Engine> cold_;
};

INSTANTIATE_TEST_SUITE_P(AsOnGpu, StoredPrefixes, ::testing::Bool());

TEST_P(StoredPrefixes, ALaterEngineFindsThem) {
  const Request request = request_of(testing::random_tokens(37)),
                adapted = request_of(*request.token_ids, "a");
  for (int i = 0; i < 3; ++i) {
    Engine engine = stored_engine();
    EXPECT_EQ(run(engine, request), i == 0 ? 0 : 36) << "engine " << i;
    EXPECT_EQ(run(engine, adapted), i == 0 ? 0 : 36) << "engine " << i;
    EXPECT_EQ(run(engine, request), 36) << "in memory by now";
    EXPECT_EQ(engine.stats().disk_tokens, i == 0 ? 0 : 2 * 36);
  }
  EXPECT_TRUE(warnings.empty());
}

TEST_P(StoredPrefixes, AnAnswerIsTheBeginningOfTheNextTurn) {
  Request request = request_of(testing::random_tokens(10));
  std::vector<int32_t> answer;
  {
    Engine engine = stored_engine();
    answer = testing::run_all(engine, {request}).front().token_ids;
  }
  request.token_ids->insert(request.token_ids->end(), answer.begin(), answer.end());
  Engine engine = stored_engine();
  const int64_t of_prompt = 8, with_drawn = 12;  // 10 tokens, five were drawn and computed
  EXPECT_EQ(run(engine, request), is_as_on_gpu() ? of_prompt : with_drawn);
}

/// A prompt at once, in chunks, and one whose tokens were drawn, of 16 tokens in all.
TEST_P(StoredPrefixes, APageDoesNotShowHowItWasFilled) {
  if (is_as_on_gpu()) GTEST_SKIP() << "drawn tokens are not those of prompts there";
  const auto pages_of = [&](const Request& request, EngineOptions options) {
    std::vector<int32_t> tokens = *request.token_ids;
    {
      Engine engine = stored_engine(options);
      const Completion answer = testing::run_all(engine, {request}).front();
      tokens.insert(tokens.end(), answer.token_ids.begin(), answer.token_ids.end());
    }
    std::ostringstream bytes;
    bytes << std::ifstream(dir() + "/heddle_kv_pages", std::ios::binary).rdbuf();
    fs::remove_all(dir());
    return std::pair(tokens, bytes.str());
  };
  for (const char* kv_type : {"bf16", "fp8"}) {
    Request request = request_of(testing::random_tokens(9));
    request.max_tokens = 8;  // the last one is drawn and not computed
    const auto [tokens, drawn] = pages_of(request, {.kv_type = kv_type});
    ASSERT_EQ(tokens.size(), 17u);
    request.token_ids->assign(tokens.begin(), tokens.begin() + 16);
    request.max_tokens = 1;
    EXPECT_GE(drawn.size(), 4 * 256u) << "four pages of fp8";
    EXPECT_TRUE(pages_of(request, {.kv_type = kv_type}).second == drawn) << kv_type;
    EXPECT_TRUE(pages_of(request, {.prefill_chunk = 3, .kv_type = kv_type}).second == drawn);
  }
}

TEST_P(StoredPrefixes, PagesThatMemoryHasNoRoomForComeBack) {
  Engine probe = engine_with({.max_batch = 1});
  const int64_t page_bytes = probe.options().kv_memory / probe.load().num_pages;
  Engine engine = stored_engine({.max_batch = 2,
                                 .kv_memory = 12 * page_bytes,
                                 .kv_host_memory = is_as_on_gpu() ? 12 * page_bytes : -1});
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(request_of(testing::random_tokens(25)));
  for (const Request& request : requests) EXPECT_EQ(run(engine, request), 0);
  // 25 tokens fill six pages, with the five of the answer that were computed seven. One that is not
  // written yet cannot be read.
  const int64_t num_pages = 6 * (is_as_on_gpu() ? 6 : 7);
  for (int i = 0; engine.load().num_disk_pages < num_pages && i < 1000; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    // Pages of a GPU are passed on between steps.
    if (is_as_on_gpu()) (void)run(engine, request_of({1, 2}));
  }
  EXPECT_EQ(engine.load().num_disk_pages, num_pages);
  for (const Request& request : requests) EXPECT_EQ(run(engine, request), 24);
  EXPECT_GT(engine.stats().disk_tokens, 3 * 24);
}

TEST_P(StoredPrefixes, SeveralRequestsWaitForOneRead) {
  const std::vector<int32_t> shared = testing::random_tokens(30);
  {
    Engine engine = stored_engine();
    EXPECT_EQ(run(engine, request_of(shared)), 0);
  }
  Engine engine = stored_engine({.max_batch = 4});
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) {
    std::vector<int32_t> tokens = shared;
    tokens.push_back(static_cast<int32_t>(i));
    requests.push_back(request_of(tokens));
  }
  const std::vector<Completion> got = testing::run_all(engine, requests),
                                want = testing::run_all(cold(), requests);
  for (size_t i = 0; i < got.size(); ++i) {
    testing::expect_same(got[i], want[i], "request " + std::to_string(i));
    EXPECT_EQ(got[i].cached_tokens, 28);
  }
}

/// Those are read that were begun; the request is gone.
TEST_P(StoredPrefixes, ARequestMayEndWhileItsPagesAreRead) {
  const Request request = request_of(testing::random_tokens(57));
  {
    Engine engine = stored_engine();
    EXPECT_EQ(run(engine, request), 0);
  }
  for (int num_steps = 0; num_steps < 4; ++num_steps) {
    Engine engine = stored_engine();
    const RequestId id = engine.submit(request);
    for (int i = 0; i < num_steps; ++i) (void)engine.step();
    EXPECT_TRUE(engine.cancel(id));
    if (num_steps % 2 == 1) engine.reset_prefix_cache();
    while (engine.num_unfinished() > 0) (void)engine.step();
    EXPECT_EQ(run(engine, request) > 0, num_steps % 2 == 0);
  }
}

TEST_P(StoredPrefixes, SaltedPagesStayInMemory) {
  Request request = request_of(testing::random_tokens(20));
  request.cache_salt = "tenant";
  for (int i = 0; i < 2; ++i) {
    Engine engine = stored_engine();
    EXPECT_EQ(run(engine, request), 0);
    EXPECT_EQ(run(engine, request), 19) << "all but the last token";
  }
}

TEST_P(StoredPrefixes, SaltedPagesGoThereWhereThatIsAskedFor) {
  Request request = request_of(testing::random_tokens(20));
  for (int i = 0; i < 3; ++i) {
    Engine engine = stored_engine({.kv_disk_salted = true});
    for (const char* salt : {"tenant", "another", ""}) {
      request.cache_salt = salt;
      EXPECT_EQ(run(engine, request), i == 0 ? 0 : 16) << salt;
    }
    request.cache_salt = "a third, in engine " + std::to_string(i);
    EXPECT_EQ(run(engine, request), 0);
  }
}

TEST_P(StoredPrefixes, AResetForgetsTheFolderToo) {
  const Request request = request_of(testing::random_tokens(20));
  {
    Engine engine = stored_engine();
    EXPECT_EQ(run(engine, request), 0);
    engine.reset_prefix_cache();
  }
  Engine engine = stored_engine();
  EXPECT_EQ(run(engine, request), 0);
}

TEST_P(StoredPrefixes, WhatOtherEnginesHaveComputedIsNotTaken) {
  if (!testing::is_on_cpu()) GTEST_SKIP() << "a GPU's cache has the type of the activations";
  const Request request = request_of(testing::random_tokens(20));
  for (const char* kv_type : {"f16", "bf16", "fp8"}) {
    Engine engine = stored_engine({.kv_type = kv_type});
    EXPECT_EQ(testing::run_all(engine, {request}).front().cached_tokens, 0);
  }
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_NE(warnings[0].find("was made with kv_type f16, this engine has bf16"), std::string::npos)
      << warnings[0];
  EXPECT_NE(warnings[1].find("was made with kv_type bf16, this engine has fp8"), std::string::npos)
      << warnings[1];
}

/// Whichever byte is another one: a page has the bits of a cold run or is computed.
TEST_P(StoredPrefixes, DamagedFilesChangeNoBit) {
  const Request request = request_of(testing::random_tokens(45));
  {
    Engine engine = stored_engine();
    EXPECT_EQ(run(engine, request), 0);
  }
  const fs::path kept = folder.path() / "kept";
  fs::copy(dir(), kept, fs::copy_options::recursive);
  int64_t num_found = 0;
  for (int round = 0; round < 12; ++round) {
    fs::remove_all(dir());
    fs::copy(kept, dir(), fs::copy_options::recursive);
    for (const auto& file : fs::directory_iterator(dir())) {
      const auto size = static_cast<int64_t>(file.file_size());
      if (size == 0) continue;
      std::fstream bytes(file.path(), std::ios::binary | std::ios::in | std::ios::out);
      for (int64_t i = 0; i < 1 + size / 20000; ++i) {
        bytes.seekp(testing::random_int(0, size - 1));
        bytes.put(static_cast<char>(testing::random_int(0, 255)));
      }
    }
    Engine engine = stored_engine();
    num_found += run(engine, request);
  }
  EXPECT_LT(num_found, 12 * 44);
}

TEST_P(StoredPrefixes, WhatCannotBeIsRefusedByName) {
  testing::expect_invalid({"kv_cache_dir", "prefix cache is turned off"},
                          [&] { (void)stored_engine({.prefix_cache = false}); });
  testing::expect_invalid({"kv_disk_memory is 5", "no kv_cache_dir"},
                          [&] { (void)engine_with({.kv_disk_memory = 5}); });
  testing::expect_invalid({"kv_disk_salted is set", "no kv_cache_dir"},
                          [&] { (void)engine_with({.kv_disk_salted = true}); });
  if (testing::is_on_cpu()) return;
  testing::expect_invalid({"kv_cache_dir", "through host memory", "kv_host_memory is 0"},
                          [&] { (void)stored_engine({.kv_host_memory = 0}); });
}

}  // namespace
}  // namespace heddle
