// Adapters in three tiers: more of them than the device has memory for, and than the host has
// copies of; on the CPU there are no copies.
#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "engine/adapters/test/adapter_folder_case.h"
#include "expect_error.h"
#include "heap_count.h"
#include "random.h"
#include "small_sizes.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

class AdapterTiersTest : public testing::AdapterFolderTest {
 protected:
  void write_all(int count) {
    for (int i = 0; i < count; ++i) write(name_of(i));
  }
  [[nodiscard]] static std::string name_of(int64_t i) { return "a" + std::to_string(i); }

  /// What the adapter answers alone, in so many tokens.
  const Completion& wanted(const std::string& name, int64_t max_tokens) {
    const auto [place, is_new] = wanted_.try_emplace({name, max_tokens});
    if (is_new) {
      const std::string path = (folder_.path() / name).string();
      if (!name.empty()) (void)alone_.replace_adapter("it", path);
      place->second =
          testing::run_all(alone_, {request(name.empty() ? "" : "it", max_tokens)}).front();
    }
    return place->second;
  }

  /// A step, after which no memory has more than its bound.
  void step(Engine& engine, std::vector<testing::Outcome>& outcomes) {
    testing::take(engine.step(), 0, outcomes);
    EXPECT_LE(engine.load().adapter_bytes, engine.options().adapter_memory);
    EXPECT_LE(engine.load().host_adapter_bytes, engine.options().adapter_host_memory);
  }

  std::map<std::pair<std::string, int64_t>, Completion> wanted_;
};

TEST_F(AdapterTiersTest, FortyOverFourPlacesAnswerAsAlone) {
  constexpr int kNumAdapters = 40, kNumRequests = 150;
  write_all(kNumAdapters);
  Engine engine = this->engine(4, 6, 10);
  std::vector<Request> requests;
  for (int i = 0; i < kNumRequests; ++i) {
    const int64_t most = testing::random_int(0, kNumAdapters - 1);  // some far more often
    const bool has_none = testing::random_int(0, 7) == 0;
    requests.push_back(
        request(has_none ? "" : name_of(testing::random_int(0, most)), testing::random_int(1, 12)));
  }
  std::vector<testing::Outcome> outcomes(requests.size());
  size_t next = 0;
  for (int num_steps = 0; num_steps < testing::kTooManySteps; ++num_steps) {
    for (int64_t n = testing::random_int(0, 4); n > 0 && next < requests.size(); --n) {
      (void)engine.submit(requests[next++]);
    }
    if (next == requests.size() && engine.num_unfinished() == 0) break;
    step(engine, outcomes);
  }
  testing::expect_idle(engine);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(outcomes[i].num_completions, 1);
    const std::string& name = requests[i].adapter;
    testing::expect_same(outcomes[i].completion, wanted(name, requests[i].max_tokens), name);
  }
  EXPECT_GT(engine.stats().adapter_evictions, 10);
  EXPECT_LE(engine.stats().adapter_loads, engine.stats().adapter_uses);
}

/// One that was evicted is loaded again from its copy, or from its file where the copy was dropped.
TEST_F(AdapterTiersTest, CopiesInHostMemorySpareReads) {
  if (testing::is_on_cpu()) GTEST_SKIP() << "adapters are in host memory";
  write_all(4);
  Engine engine = this->engine(1, 2, 3);
  const auto run = [&](int i) {
    const EngineStats before = engine.stats();
    testing::expect_same(answer(engine, name_of(i)), wanted(name_of(i), 3), name_of(i));
    EXPECT_LE(engine.load().num_host_adapters, 3);
    const EngineStats& now = engine.stats();
    return std::pair(now.adapter_loads - before.adapter_loads,
                     now.adapter_reads - before.adapter_reads);
  };
  using Counts = std::pair<int64_t, int64_t>;
  for (const int i : {0, 1, 2}) EXPECT_EQ(run(i), Counts(1, 1));
  EXPECT_EQ(run(2), Counts(0, 0)) << "it is resident";
  for (const int i : {0, 1, 2}) EXPECT_EQ(run(i), Counts(1, 0)) << "it has a copy";
  EXPECT_EQ(run(3), Counts(1, 1));
  EXPECT_EQ(run(2), Counts(1, 0)) << "the least recently used copy was dropped";
  EXPECT_EQ(run(0), Counts(1, 1));
}

/// Names that are removed and found again while their rows wait, start or run.
TEST_F(AdapterTiersTest, NamesComeAndGoWhileRowsWait) {
  constexpr int kNumAdapters = 12, kNumRequests = 80;
  write_all(kNumAdapters);
  Engine engine = this->engine(5, 3, 4);
  (void)engine.add_adapter("x", (folder_.path() / name_of(0)).string());
  std::string of_x = name_of(0);
  std::vector<std::pair<std::string, int64_t>> submitted;  // as which adapter it shall answer
  std::vector<testing::Outcome> outcomes(kNumRequests);
  while (engine.num_unfinished() > 0 || submitted.size() < kNumRequests) {
    if (submitted.size() < kNumRequests) {
      const bool is_x = testing::random_int(0, 3) == 0;
      const std::string name = name_of(testing::random_int(0, kNumAdapters - 1));
      const int64_t max_tokens = testing::random_int(1, 8);
      (void)engine.submit(request(is_x ? "x" : name, max_tokens));
      submitted.emplace_back(is_x ? of_x : name, max_tokens);
    }
    if (testing::random_int(0, 2) == 0) {
      (void)engine.remove_adapter(name_of(testing::random_int(0, kNumAdapters - 1)));
    }
    if (testing::random_int(0, 5) == 0) {
      const std::string name = name_of(testing::random_int(0, kNumAdapters - 1));
      try {
        (void)engine.replace_adapter("x", (folder_.path() / name).string());
        of_x = name;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory) << "rows use all memory";
      }
    }
    step(engine, outcomes);
  }
  for (size_t i = 0; i < submitted.size(); ++i) {
    const auto& [name, max_tokens] = submitted[i];
    const std::string& error = outcomes[i].completion.error;
    if (error.find("bytes of adapter memory") != std::string::npos) continue;  // x has taken it
    testing::expect_same(outcomes[i].completion, wanted(name, max_tokens), name);
  }
}

/// A thread finds adapters and tokenizes while the engine loads, evicts and forgets them.
TEST_F(AdapterTiersTest, RequestsAreEncodedWhileOthersRun) {
  constexpr int kNumAdapters = 12, kNumRequests = 60;
  write_all(kNumAdapters);
  Engine engine = this->engine(4, 3, 4);
  std::vector<Request> requests;
  for (int i = 0; i < kNumRequests; ++i) {
    requests.push_back(request(name_of(testing::random_int(0, kNumAdapters - 1)), 5));
  }
  std::mutex mutex;
  std::deque<EncodedRequest> encoded;
  std::thread encoding([&] {
    for (const Request& request : requests) {
      EncodedRequest next = engine.encode(request);
      const std::lock_guard lock(mutex);
      encoded.push_back(std::move(next));
    }
  });
  std::vector<testing::Outcome> outcomes(requests.size());
  for (size_t num_submitted = 0; num_submitted < requests.size() || engine.num_unfinished() > 0;) {
    {
      const std::lock_guard lock(mutex);
      for (; !encoded.empty(); encoded.pop_front(), ++num_submitted) {
        (void)engine.submit(std::move(encoded.front()));
      }
    }
    (void)engine.remove_adapter(name_of(testing::random_int(0, kNumAdapters - 1)));
    step(engine, outcomes);
  }
  encoding.join();
  testing::expect_idle(engine);
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::string& name = requests[i].adapter;
    testing::expect_same(outcomes[i].completion, wanted(name, 5), name);
  }
}

TEST_F(AdapterTiersTest, AFileThatCannotBeReadAgainEndsItsRowsAlone) {
  write_all(3);
  Engine engine = this->engine(1, 2, 1);
  for (const int i : {0, 1}) (void)wanted(name_of(i), 20);
  std::vector<testing::Outcome> outcomes(5);
  (void)engine.submit(request(name_of(0), 20));
  step(engine, outcomes);
  for (const int i : {1, 2, 2, 1}) (void)engine.submit(request(name_of(i), 20));
  fs::remove(folder_.path() / name_of(2) / "adapter_model.safetensors");
  while (engine.num_unfinished() > 0) step(engine, outcomes);
  for (const size_t i : {2u, 3u}) {
    EXPECT_EQ(outcomes[i].completion.finish_reason, FinishReason::kError);
    EXPECT_NE(outcomes[i].completion.error.find(name_of(2)), std::string::npos)
        << outcomes[i].completion.error;
  }
  testing::expect_same(outcomes[0].completion, wanted(name_of(0), 20), "runs");
  for (const size_t i : {1u, 4u}) {
    testing::expect_same(outcomes[i].completion, wanted(name_of(1), 20), "waits with them");
  }
  testing::expect_idle(engine);
}

TEST_F(AdapterTiersTest, EachAllocationMayFail) {
  write_all(4);
  std::vector<Request> requests;
  for (const int i : {0, 1, 2, 0, 3, 1, 2}) requests.push_back(request(name_of(i), 4));
  int64_t num_failures = 0, countdown = 0;
  for (int64_t n = 1; countdown <= 0; n += 1 + n / testing::small_or(10, 40)) {
    countdown = n;
    Engine engine = this->engine(2, 3, 3);
    std::map<RequestId, size_t> ids;
    for (size_t i = 0; i < requests.size(); ++i) {
      std::optional<RequestId> id;
      try {
        const testing::FailingAllocation failing(countdown);
        id = engine.submit(requests[i]);
      } catch (const std::bad_alloc&) {
        ++num_failures;
      }
      if (id) ids[*id] = i;
    }
    int num_steps = 0;
    for (; engine.num_unfinished() > 0 && num_steps < 1000; ++num_steps) {
      std::vector<Event> events;
      try {
        const testing::FailingAllocation failing(countdown);
        events = engine.step();
      } catch (const std::bad_alloc&) {
        ++num_failures;
      }
      for (const Event& event : events) {
        if (!event.completion) continue;
        const Request& request = requests[ids.at(event.request)];
        if (event.completion->error.empty()) {
          testing::expect_same(*event.completion, wanted(request.adapter, 4), request.adapter);
        } else {
          ++num_failures;
          EXPECT_NE(event.completion->error.find("memory"), std::string::npos)
              << event.completion->error;
        }
      }
    }
    ASSERT_LT(num_steps, 1000) << "rows do not come to an end, allocation " << n;
    // A load that was begun for a row that has ended may fail later, which the next row reports.
    const std::string error = testing::run_all(engine, {requests[0]}).front().error;
    EXPECT_TRUE(error.empty() || error.find("memory") != std::string::npos) << error;
    EXPECT_EQ(testing::run_all(engine, {requests[0]}).front().error, "") << "allocation " << n;
  }
  EXPECT_GT(num_failures, 20) << "few allocations were seen";
}

TEST_F(AdapterTiersTest, RowsThatRunHaveNoMoreAdaptersThanTheOptionsSay) {
  constexpr int kNumAdapters = 4;
  write_all(kNumAdapters);
  const auto most_at_once = [&](EngineOptions options) {
    options.max_batch = kNumAdapters;
    options.adapter_dir = folder_.path().string();
    Engine engine = model_.engine(options);
    for (int i = 0; i < kNumAdapters; ++i) (void)answer(engine, name_of(i));  // all are loaded
    for (int i = 0; i < kNumAdapters; ++i) (void)engine.submit(request(name_of(i), 5));
    std::vector<testing::Outcome> outcomes(2 * kNumAdapters);
    int64_t most = 0;
    while (engine.num_unfinished() > 0) {
      step(engine, outcomes);
      most = std::max(most, engine.load().num_running);
    }
    for (int i = 0; i < kNumAdapters; ++i) {
      const auto& outcome = outcomes[static_cast<size_t>(kNumAdapters + i)];
      testing::expect_same(outcome.completion, wanted(name_of(i), 5), name_of(i));
    }
    return most;
  };
  EXPECT_EQ(most_at_once({}), kNumAdapters);
  EXPECT_EQ(most_at_once({.max_batch_adapters = 1}), 1);
  EXPECT_EQ(most_at_once({.max_batch_adapters = 3}), 3);
  EXPECT_EQ(most_at_once({.max_batch_adapter_bytes = 2 * bytes_of_one_}), 2);
  testing::expect_invalid({"max_batch_adapters is -1"},
                          [&] { (void)model_.engine({.max_batch_adapters = -1}); });
}

TEST_F(AdapterTiersTest, HostMemoryIsForAGpu) {
  EngineOptions options{.adapter_dir = folder_.path().string(),
                        .adapter_host_memory = bytes_of_one_ - 1};
  if (testing::is_on_cpu()) {
    testing::expect_invalid({"adapter_host_memory", "bound them with adapter_memory"},
                            [&] { (void)model_.engine(options); });
    return;
  }
  Engine engine = model_.engine(options);
  const std::string error = answer(engine, "first").error;
  EXPECT_NE(error.find("(adapter_host_memory)"), std::string::npos) << error;
}

}  // namespace
}  // namespace heddle
