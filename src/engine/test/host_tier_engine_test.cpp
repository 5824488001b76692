// Pages in host memory of an engine whose KV cache is small: they come back with the bits of a cold
// run. On the CPU the engine is made as on a GPU, so that the same lines run.
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/face/made_engine.h"
#include "engine/test/tiny_adapter.h"
#include "engine/test/tiny_model.h"
#include "expect_error.h"

namespace heddle {
namespace {

namespace llama = model::llama;
using model::ref::Llama;

class HostPrefixes : public ::testing::Test {
 protected:
  static constexpr int64_t kHostPages = 200;

  Engine engine_with(EngineOptions options) {
    options.page_size = 4;
    options.kv_type = kv_type;
    options.model_path = model.path();
    options.num_threads = 2;
    options.device = testing::test_device();
    options.on_warning = [this](const std::string& text) { warnings.push_back(text); };
    Engine made = open_engine(options, {.as_on_gpu = true});
    (void)made.add_adapter("a", a.folder.path().string());
    return made;
  }
  int64_t page_bytes() {
    if (page_bytes_ == 0) {
      const Engine probe = engine_with({.max_batch = 1, .kv_host_memory = 0});
      page_bytes_ = probe.options().kv_memory / probe.load().num_pages;
    }
    return page_bytes_;
  }
  /// With a KV cache of few pages.
  Engine small_engine(int64_t num_pages, int64_t host_pages, int max_batch = 2) {
    return engine_with({.max_batch = max_batch,
                        .kv_memory = num_pages * page_bytes(),
                        .kv_host_memory = host_pages * page_bytes()});
  }
  /// One that computes all of every prompt.
  Engine& cold() {
    if (!cold_) {
      cold_.emplace(engine_with({.max_batch = 1, .prefix_cache = false, .kv_host_memory = 0}));
    }
    return *cold_;
  }
  /// Tokens of the prompt that were found; the answer is that of a cold run.
  int64_t run(Engine& engine, const Request& request) {
    const Completion answer = testing::run_all(engine, {request}).front();
    testing::expect_same(answer, testing::run_all(cold(), {request}).front(), "with host memory");
    return answer.cached_tokens;
  }
  static Request request_of(std::vector<int32_t> tokens, const std::string& adapter = "",
                            int64_t max_tokens = 6) {
    Request request = testing::endless_request(std::move(tokens), max_tokens);
    request.adapter = adapter;
    return request;
  }

  Llama base = model::random_llama(testing::tiny_config(), true);
  testing::TinyAdapter a{base, 3, {llama::kQ, llama::kV, llama::kDown}};
  testing::TinyModel model{base};
  std::vector<std::string> warnings;
  const std::string kv_type = testing::any_kv_type();

 private:
  std::optional<Engine> cold_;
  int64_t page_bytes_ = 0;
};

TEST_F(HostPrefixes, PagesThatTheDeviceHasNoRoomForComeBack) {
  Engine engine = small_engine(12, kHostPages);
  EXPECT_EQ(engine.options().kv_host_memory, kHostPages * page_bytes());
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(request_of(testing::random_tokens(25), i % 2 == 0 ? "" : "a"));
    if (i > 3) requests.back().cache_salt = "tenant";
  }
  for (const Request& request : requests) EXPECT_EQ(run(engine, request), 0);
  EXPECT_EQ(engine.load().num_host_pages, 6 * 6) << "pages of prompts";
  EXPECT_EQ(engine.stats().host_tokens, 0);
  for (int round = 1; round < 4; ++round) {
    for (const Request& request : requests) EXPECT_EQ(run(engine, request), 24);
    EXPECT_GE(engine.stats().host_tokens, round * 5 * 24);
  }
  EXPECT_EQ(engine.stats().disk_tokens, 0);
  engine.reset_prefix_cache();
  EXPECT_EQ(engine.load().num_host_pages, 0);
  EXPECT_EQ(run(engine, requests.front()), 0);
  EXPECT_TRUE(warnings.empty()) << warnings.front();
}

/// A prompt that goes on from pages on the device, in host memory, and in neither.
TEST_F(HostPrefixes, APrefixIsTakenFromWhereItIs) {
  Engine engine = small_engine(16, 20);
  const std::vector<int32_t> prompt = testing::random_tokens(45);
  int64_t num_found = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<int32_t> tokens = prompt;
    tokens.resize(static_cast<size_t>(testing::random_int(5, 45)));
    if (round % 3 == 0) tokens[size_t(testing::random_int(0, std::ssize(tokens) - 1))] ^= 1;
    num_found += run(engine, request_of(tokens, round % 4 == 0 ? "a" : ""));
  }
  EXPECT_GT(num_found, 60 * 4);
  EXPECT_GT(engine.stats().host_tokens, 0);
}

TEST_F(HostPrefixes, RequestsThatRunAtOnceHaveTheirOwnPages) {
  Engine engine = small_engine(24, 40, 6);
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(request_of(testing::random_tokens(testing::random_int(9, 30)),
                                  i % 3 == 0 ? "a" : "", testing::random_int(2, 20)));
  }
  std::vector<Completion> want;
  for (const Request& request : requests) {
    want.push_back(testing::run_all(cold(), {request}).front());
  }
  for (int round = 0; round < 6; ++round) {
    const std::vector<Completion> got = testing::run_all(engine, requests);
    for (size_t i = 0; i < got.size(); ++i) {
      testing::expect_same(got[i], want[i], "request " + std::to_string(i));
    }
    if (round == 3) engine.reset_prefix_cache();
  }
  EXPECT_GT(engine.stats().host_tokens, 0);
}

/// Those are copied that were begun; the request is gone.
TEST_F(HostPrefixes, ARequestMayEndWhileItsPagesComeBack) {
  Engine engine = small_engine(14, kHostPages);
  const Request request = request_of(testing::random_tokens(41)),
                other = request_of(testing::random_tokens(41));
  EXPECT_EQ(run(engine, request), 0);
  for (int num_steps = 0; num_steps < 4; ++num_steps) {
    (void)run(engine, other);
    const RequestId id = engine.submit(request);
    for (int i = 0; i < num_steps; ++i) (void)engine.step();
    EXPECT_TRUE(engine.cancel(id));
    while (engine.num_unfinished() > 0) (void)engine.step();
    EXPECT_EQ(run(engine, request), 40);
  }
}

/// With room on the host fewer steps are computed, and with or without room the bits are the same.
TEST_F(HostPrefixes, ParkedRequestsGoOnFromHostMemory) {
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(request_of(testing::random_tokens(testing::random_int(3, 14)),
                                  i % 3 == 0 ? "a" : "", testing::random_int(25, 45)));
  }
  std::vector<Completion> want;
  for (const Request& request : requests) {
    want.push_back(testing::run_all(cold(), {request}).front());
  }
  for (const bool prefix_cache : {true, false}) {
    std::vector<int64_t> num_steps;
    for (const int64_t host_pages : {0, 12, 400}) {
      Engine engine = engine_with({.max_batch = 6,
                                   .kv_memory = 24 * page_bytes(),
                                   .prefix_cache = prefix_cache,
                                   .kv_host_memory = host_pages * page_bytes()});
      const std::vector<Completion> got = testing::run_all(engine, requests);
      for (size_t i = 0; i < got.size(); ++i) {
        testing::expect_same(
            got[i], want[i],
            "request " + std::to_string(i) + ", host pages: " + std::to_string(host_pages));
      }
      EXPECT_GT(engine.stats().parkings, 0);
      EXPECT_EQ(engine.load().num_free_pages, engine.load().num_pages);
      num_steps.push_back(engine.stats().prefill_steps + engine.stats().decode_steps);
    }
    EXPECT_LT(num_steps.back(), num_steps.front());
  }
}

/// Cancelled, paused, or forgotten by the prefix cache while they are parked or come back.
TEST_F(HostPrefixes, ParkedRequestsMayEndAtAnyTime) {
  Engine engine = engine_with(
      {.max_batch = 6, .kv_memory = 24 * page_bytes(), .kv_host_memory = 60 * page_bytes()});
  std::vector<Request> requests;
  std::vector<Completion> want;
  for (int i = 0; i < 12; ++i) {
    requests.push_back(request_of(testing::random_tokens(testing::random_int(3, 14)), "",
                                  testing::random_int(20, 45)));
    want.push_back(testing::run_all(cold(), {requests.back()}).front());
  }
  for (int round = 0; round < 8; ++round) {
    std::vector<RequestId> ids;
    for (const Request& request : requests) ids.push_back(engine.submit(request));
    std::vector<testing::Outcome> outcomes(ids.size());
    const auto any = [&] { return ids[size_t(testing::random_int(0, 11))]; };
    for (int64_t i = 0; engine.num_unfinished() > 0; ++i) {
      testing::take(engine.step(), ids.front(), outcomes);
      if (i % 40 == 20) engine.cancel(any());
      if (i % 5 == 3) engine.set_paused(any(), true);
      if (i % 5 == 0) {
        for (const RequestId id : ids) engine.set_paused(id, false);
      }
      if (i % 70 == 50) engine.reset_prefix_cache();
    }
    for (size_t k = 0; k < ids.size(); ++k) {
      if (outcomes[k].completion.finish_reason == FinishReason::kCancelled) continue;
      testing::expect_same(outcomes[k].completion, want[k], "request " + std::to_string(k));
    }
    EXPECT_EQ(engine.load().num_free_pages, engine.load().num_pages);
  }
  EXPECT_GT(engine.stats().parkings, 0);
}

TEST_F(HostPrefixes, WhatCannotBeIsRefusedByName) {
  testing::expect_invalid({"kv_host_memory is 5 bytes", "at least a page"},
                          [&] { (void)engine_with({.kv_host_memory = 5}); });
  testing::expect_invalid({"kv_host_memory is -2"},
                          [&] { (void)engine_with({.kv_host_memory = -2}); });
  testing::expect_invalid({"kv_host_memory is 1000000", "on the CPU", "kv_memory"}, [&] {
    (void)Engine({.model_path = model.path(), .device = "cpu", .kv_host_memory = 1000000});
  });
  const Engine engine({.model_path = model.path(), .device = "cpu"});
  EXPECT_EQ(engine.options().kv_host_memory, 0);
}

}  // namespace
}  // namespace heddle
