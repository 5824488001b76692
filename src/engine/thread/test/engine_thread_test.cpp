// The thread of an engine and the queue of its events: what is pending, that nothing is lost, and
// memory that runs out at any place.
#include "engine/thread/engine_thread.h"

#include <chrono>
#include <future>
#include <map>
#include <new>
#include <poll.h>

#include <gtest/gtest.h>

#include "engine/test/engine_cases.h"
#include "engine/test/model_files.h"
#include "engine/test/test_device.h"
#include "expect_error.h"
#include "heap_count.h"

namespace heddle {
namespace {

using testing::endless_request;

EventQueue::Clock::time_point now() { return EventQueue::Clock::now(); }
EventQueue::Clock::time_point in_a_minute() { return now() + std::chrono::minutes(1); }

Event text_event(RequestId request, const std::string& text) {
  return {.request = request, .text = text};
}
Event last_event(RequestId request, const std::string& text, const std::string& answer) {
  Event event = text_event(request, text);
  event.completion.emplace();
  event.completion->text = answer;
  return event;
}

bool is_readable(int descriptor) {
  pollfd wanted{.fd = descriptor, .events = POLLIN, .revents = 0};
  return ::poll(&wanted, 1, 0) == 1;
}

TEST(EventQueue, WhatWasNotTakenIsOneEventAndTheOldestComesFirst) {
  EventQueue queue;
  for (const RequestId id : {3, 5}) queue.expect(id);
  EXPECT_FALSE(queue.next(now()));
  queue.tell(text_event(5, "a"));
  queue.tell(text_event(3, "x"));
  queue.tell(text_event(5, "b"));
  std::optional<Event> event = queue.next(now());
  ASSERT_TRUE(event);
  EXPECT_EQ(event->request, 5);
  EXPECT_EQ(event->text, "ab");
  EXPECT_FALSE(event->completion);
  EXPECT_EQ(queue.next(now())->text, "x");
  EXPECT_FALSE(queue.next(now()));
  queue.tell(text_event(5, "c"));
  queue.tell(last_event(5, "d", "abcd"));
  event = queue.next(now());
  EXPECT_EQ(event->text, "cd");
  EXPECT_EQ(event->completion->text, "abcd");
  EXPECT_EQ(queue.num_unfinished(), 1);
}

TEST(EventQueue, ReportsEndsAloneWhereNothingElseIsWanted) {
  EventQueue queue(EventQueue::Tells::kEnds);
  queue.expect(0);
  queue.tell(text_event(0, "a"));
  EXPECT_FALSE(queue.next(now()));
  queue.tell(last_event(0, "b", "ab"));
  const std::optional<Event> event = queue.next(now());
  EXPECT_EQ(event->text, "");
  EXPECT_EQ(event->completion->text, "ab");
  EXPECT_EQ(queue.num_unfinished(), 0);
}

TEST(EventQueue, ItsDescriptorIsReadableWhileEventsArePending) {
  EventQueue queue;
  queue.expect(0);
  queue.tell(text_event(0, "a"));
  const int descriptor = queue.file_descriptor();
  EXPECT_EQ(queue.file_descriptor(), descriptor);
  EXPECT_TRUE(is_readable(descriptor)) << "events that came before";
  EXPECT_TRUE(queue.next(now()));
  EXPECT_FALSE(queue.next(now()));
  EXPECT_FALSE(is_readable(descriptor));
  queue.tell(text_event(0, "b"));
  EXPECT_TRUE(is_readable(descriptor));
}

TEST(EventQueue, TextThatFindsNoMemoryComesWithTheEnd) {
  EventQueue queue;
  queue.expect(0);
  queue.tell(text_event(0, "a"));
  EXPECT_EQ(queue.next(now())->text, "a");
  const std::string more(100, 'b');  // longer than a string holds by itself
  Event event = text_event(0, more), later = text_event(0, "c");
  Event last = last_event(0, "d", "a" + more + "cd");
  int64_t countdown = 1;
  {
    const testing::FailingAllocation failing(countdown);
    queue.tell(std::move(event));
  }
  EXPECT_EQ(countdown, 0);
  queue.tell(std::move(later));
  queue.tell(std::move(last));
  EXPECT_EQ(queue.next(now())->text, more + "cd");
}

class EngineThreadTest : public ::testing::Test {
 protected:
  EngineOptions options() {
    return {.model_path = model.path(),
            .device = testing::test_device(),
            .max_batch = 2,
            .num_threads = 1,
            .page_size = 4};
  }

  /// Whatever runs out, a request that was submitted ends once.
  static std::map<RequestId, Completion> take_all(EventQueue& queue) {
    std::map<RequestId, Completion> ended;
    std::map<RequestId, std::string> texts;
    while (queue.num_unfinished() > 0) {
      std::optional<Event> event = queue.next(in_a_minute());
      if (!event) {
        ADD_FAILURE() << "requests do not come to an end";
        break;
      }
      texts[event->request] += event->text;
      if (!event->completion) continue;
      EXPECT_FALSE(ended.contains(event->request));
      EXPECT_EQ(texts[event->request], event->completion->text);
      ended[event->request] = std::move(*event->completion);
    }
    return ended;
  }

  testing::RandomModel model;
};

TEST_F(EngineThreadTest, EachAllocationMayFail) {
  EngineThread thread(options());
  const auto queue = std::make_shared<EventQueue>();
  const std::vector<Request> requests{endless_request({1, 2}, 20), endless_request({3}, 30),
                                      endless_request({4, 5, 6}, 5)};
  const auto submit = [&](const Request& request) {  // each twice, as one request
    return thread.submit_each(request, {{}, {.seed_offset = 1}}, queue);
  };
  std::vector<Completion> want;
  for (const Request& request : requests) (void)submit(request);
  for (auto& [id, completion] : take_all(*queue)) want.push_back(std::move(completion));
  int num_failed = 0, num_refused = 0, num_right = 0;
  for (int64_t n = 1;; ++n) {
    int64_t countdown = n;
    std::vector<std::vector<RequestId>> submitted(requests.size());
    {
      const testing::FailingAllocation failing(countdown);
      for (size_t i = 0; i < requests.size(); ++i) {
        try {
          submitted[i] = submit(requests[i]);
        } catch (const std::bad_alloc&) {
          ++num_refused;
        }
      }
      for (int64_t num_unfinished = 1; num_unfinished > 0;) {
        try {
          num_unfinished = thread.call([](Engine& e) { return e.num_unfinished(); });
        } catch (const std::bad_alloc&) {
          ++num_refused;
        }
      }
    }
    for (const auto& [id, completion] : take_all(*queue)) {
      if (completion.finish_reason == FinishReason::kError) {
        ++num_failed;
        EXPECT_NE(completion.error.find("out of memory"), std::string::npos) << completion.error;
        continue;
      }
      for (size_t i = 0; i < requests.size(); ++i) {
        const auto place = std::ranges::find(submitted[i], id);
        if (place == submitted[i].end()) continue;
        ++num_right;
        testing::expect_same(completion, want[2 * i + size_t(place - submitted[i].begin())],
                             "allocation");
      }
    }
    if (countdown > 0) break;
  }
  EXPECT_GT(num_refused, 0);
  EXPECT_GT(num_failed, 0);
  EXPECT_GT(num_right, 0);
}

/// A request of text, which the thread of texts tokenizes first.
Request text_request(std::string text, int64_t max_tokens) {
  Request request = endless_request({}, max_tokens);
  request.token_ids.reset();
  request.text = std::move(text);
  return request;
}

/// Its prompt takes much longer than a step, and ends with an error: it is longer than the context.
Request long_request() { return text_request(std::string(2 << 20, 'a'), 1); }

TEST_F(EngineThreadTest, EachAllocationOfTextsMayFail) {
  EngineThread thread(options());
  const auto queue = std::make_shared<EventQueue>();
  Request request = text_request("abc", 8);
  request.bad_words = {"bc", "d"};
  request.sampling.repetition_penalty = 1.5f;
  const RequestId first = thread.submit(request, queue);
  const Completion want = take_all(*queue).at(first);
  int num_failed = 0, num_right = 0;
  for (int64_t n = 1;; ++n) {
    int64_t countdown = n;
    std::vector<RequestId> ids;
    {
      const testing::FailingAllocation failing(countdown);
      try {
        ids = thread.submit_each(request, {{}, {.seed_offset = 1}}, queue);
        (void)thread.call([](Engine& e) { return e.num_unfinished(); });  // after the texts
      } catch (const std::bad_alloc&) {
      }
    }
    for (const auto& [id, completion] : take_all(*queue)) {
      if (completion.finish_reason == FinishReason::kError) {
        ++num_failed;
        EXPECT_NE(completion.error.find("out of memory"), std::string::npos) << completion.error;
      } else {
        ++num_right;
        testing::expect_same(completion, want, "allocation");
      }
    }
    if (countdown > 0) break;
  }
  EXPECT_GT(num_failed, 0);
  EXPECT_GT(num_right, 0);
}

TEST_F(EngineThreadTest, StepsDoNotWaitForTexts) {
  EngineThread thread(options());
  const auto running = std::make_shared<EventQueue>(), queue = std::make_shared<EventQueue>();
  const RequestId row = thread.submit(endless_request({1}, 60), running);
  const RequestId longest = thread.submit(long_request(), queue);
  const RequestId next = thread.submit(text_request("ab", 2), queue);
  // The row's answer has ended when the prompt is not tokenized yet: what comes after it waits.
  while (!running->next(in_a_minute())->completion) {
  }
  EXPECT_FALSE(queue->next(now()));
  const auto ended = take_all(*queue);
  EXPECT_GT(longest, row);
  EXPECT_EQ(ended.at(longest).error,
            "the prompt has 2097152 tokens, the context holds 64 with the answer");
  EXPECT_EQ(ended.at(next).finish_reason, FinishReason::kLength);
}

TEST_F(EngineThreadTest, RequestsAndCallsKeepTheirOrderAfterTexts) {
  EngineThread thread(options());
  const auto queue = std::make_shared<EventQueue>();
  std::vector<RequestId> ids{thread.submit(long_request(), queue)};
  ids.push_back(thread.submit(endless_request({1}, 1), queue));
  ids.push_back(thread.submit(text_request("ab", 1), queue));
  // The fourth that the engine sees.
  EXPECT_EQ(thread.call([](Engine& e) { return e.submit(endless_request({1}, 1)); }), 3);
  for (const RequestId id : ids) {
    const std::optional<Event> event = queue->next(in_a_minute());
    ASSERT_TRUE(event);
    EXPECT_EQ(event->request, id);
  }
}

TEST_F(EngineThreadTest, TextsThatWaitAreCancelledAndStopped) {
  EngineThread thread(options());
  const auto queue = std::make_shared<EventQueue>();
  (void)thread.submit(long_request(), queue);
  const RequestId cancelled = thread.submit(text_request("ab", 5), queue);
  const RequestId kept = thread.submit(text_request("ab", 5), queue);
  EXPECT_TRUE(thread.cancel(cancelled));
  auto ended = take_all(*queue);
  EXPECT_EQ(ended.at(cancelled).finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(ended.at(cancelled).token_ids.size(), 0u);
  EXPECT_EQ(ended.at(kept).finish_reason, FinishReason::kLength);
  for (int i = 0; i < 3; ++i) (void)thread.submit(long_request(), queue);
  thread.stop();
  ended = take_all(*queue);
  EXPECT_EQ(ended.size(), 3u);
  EXPECT_EQ(ended.rbegin()->second.finish_reason, FinishReason::kCancelled);
}

TEST_F(EngineThreadTest, RowsOfOneRequestAreCancelledOneByOne) {
  EngineThread thread(options());
  const auto queue = std::make_shared<EventQueue>();
  const Request request = endless_request({1, 2}, 40);
  const RequestId want = thread.submit(request, queue);
  // The thread waits until all of these are cancelled, so that the engine sees none of them before.
  std::promise<void> waits, go;
  std::thread waiting([&] {
    thread.call([&](Engine&) {
      waits.set_value();
      go.get_future().wait();
    });
  });
  waits.get_future().wait();
  const std::vector<RequestId> some = thread.submit_each(request, sample_variants(3), queue);
  const std::vector<RequestId> all = thread.submit_each(request, sample_variants(2), queue);
  for (const RequestId id : {some[1], all[0], all[1]}) EXPECT_TRUE(thread.cancel(id));
  go.set_value();
  waiting.join();
  EXPECT_TRUE(thread.submit_each(request, {}, queue).empty());
  auto ended = take_all(*queue);
  for (const RequestId id : {some[1], all[0], all[1]}) {
    EXPECT_EQ(ended.at(id).finish_reason, FinishReason::kCancelled);
  }
  for (const RequestId id : {some[0], some[2]}) {
    testing::expect_same(ended.at(id), ended.at(want), "greedy samples");
  }
}

TEST_F(EngineThreadTest, ACallComesAfterWhatWasSubmittedBefore) {
  EngineThread thread(options());
  const auto queue = std::make_shared<EventQueue>();
  for (int i = 0; i < 50; ++i) (void)thread.submit(endless_request({1}, 20), queue);
  const RequestId last = thread.submit(endless_request({2}, 20), queue);
  EXPECT_EQ(last, 50);
  EXPECT_THROW(thread.call([](Engine&) { throw Error(ErrorCode::kInvalidArgument, "one"); }),
               Error);
  const int64_t num_pages = thread.call([](Engine& e) { return e.load().num_pages; });
  EXPECT_GT(num_pages, 0);
  for (RequestId id = 0; id <= last; ++id) (void)thread.cancel(id);
  EXPECT_EQ(take_all(*queue).size(), 51u);
  EXPECT_FALSE(thread.cancel(last));
}

TEST_F(EngineThreadTest, TheCacheIsResetBeforeWhatIsSubmittedLater) {
  EngineThread thread(options());
  const auto queue = std::make_shared<EventQueue>();
  const auto cached = [&] {
    const RequestId id = thread.submit(endless_request({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 2), queue);
    return take_all(*queue).at(id).cached_tokens;
  };
  EXPECT_EQ(cached(), 0);
  constexpr int64_t kFound = 9;  // two pages of 4 tokens, and the next token
  EXPECT_EQ(cached(), kFound);
  thread.reset_prefix_cache();
  EXPECT_EQ(cached(), 0);
  EXPECT_EQ(cached(), kFound);
  thread.reset_prefix_cache();  // of an engine without work, too
  EXPECT_EQ(thread.call([](Engine& e) { return e.load().num_cached_pages; }), 0);
  thread.stop();
  thread.reset_prefix_cache();
}

/// Sinks may call the engine: they run in its thread.
TEST_F(EngineThreadTest, ASinkMayCall) {
  class CallingSink final : public EventSink {
   public:
    explicit CallingSink(EngineThread& thread) : thread_(thread) {}
    void expect(RequestId /*request*/) override {}
    void forget(RequestId /*request*/) noexcept override {}
    void tell(Event&& event) noexcept override {
      if (!event.completion) return;
      is_there = thread_.call([](Engine& e) { return e.has_adapter("first"); });
      (void)thread_.cancel(event.request);
      done.set_value();
    }
    std::atomic<bool> is_there = true;
    std::promise<void> done;

   private:
    EngineThread& thread_;
  };
  EngineThread thread(options());
  const auto sink = std::make_shared<CallingSink>(thread);
  (void)thread.submit(endless_request({1}, 3), sink);
  sink->done.get_future().wait();
  EXPECT_FALSE(sink->is_there);
}

/// Nothing is copied there.
TEST_F(EngineThreadTest, OnTheCpuAnAdapterIsPreparedWhileAStepRuns) {
  if (!testing::is_on_cpu()) GTEST_SKIP() << "the thread of the engine begins the copy to a GPU";
  EngineThread thread(options());
  const std::string folder = model.adapter_folder("first", 2);
  std::promise<void> end;
  thread.post([step = end.get_future().share()](Engine&) { step.wait(); });
  std::future<PreparedAdapter> prepared =
      std::async(std::launch::async, [&] { return thread.prepare_adapter(folder); });
  EXPECT_EQ(prepared.wait_for(std::chrono::minutes(1)), std::future_status::ready);
  end.set_value();
  PreparedAdapter adapter = prepared.get();
  thread.call([&](Engine& e) { (void)e.add_adapter("first", std::move(adapter)); });
  EXPECT_TRUE(thread.call([](Engine& e) { return e.has_adapter("first"); }));
}

TEST_F(EngineThreadTest, StoppingCancelsWhatIsUnfinished) {
  EngineThread thread(options());
  const auto queue = std::make_shared<EventQueue>();
  for (int i = 0; i < 20; ++i) (void)thread.submit(endless_request({1}, 60), queue);
  thread.stop();
  thread.stop();
  const auto ended = take_all(*queue);
  EXPECT_EQ(ended.size(), 20u);
  EXPECT_EQ(ended.at(19).finish_reason, FinishReason::kCancelled);
  testing::expect_invalid({"the engine is closed"},
                          [&] { (void)thread.submit(endless_request({1}, 2), queue); });
  testing::expect_invalid({"the engine is closed"}, [&] { thread.call([](Engine&) {}); });
}

}  // namespace
}  // namespace heddle
