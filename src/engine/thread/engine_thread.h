#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "heddle/engine/engine.h"

#include "engine/rows/row_failure.h"
#include "engine/thread/event_queue.h"

namespace heddle {

/// An engine with a thread that owns it and runs its steps, and one beside it that renders
/// templates and tokenizes, one request after the other in the order in which they came. No step
/// waits for that longer than a millisecond. All functions but the constructor and the destructor
/// may run beside each other, in any threads.
class EngineThread {
 public:
  /// Loads the model; throws as Engine does.
  explicit EngineThread(const EngineOptions& options) : EngineThread(Engine(options)) {}
  /// Takes an engine that nobody else uses from here on. The thread calls on_end once where the
  /// engine has ended by itself, with Engine::ended_by, behind the ends of the rows of that step.
  using OnEnd = std::function<void(const std::string& ended_by)>;
  explicit EngineThread(Engine engine, OnEnd on_end = {});
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;
  ~EngineThread() { stop(); }

  [[nodiscard]] const ModelInfo& model() const { return engine_.model(); }
  [[nodiscard]] const EngineOptions& options() const { return engine_.options(); }

  /// Engine::prepare_adapter in the thread of the caller, beside the steps.
  [[nodiscard]] PreparedAdapter prepare_adapter(const std::string& folder) const {
    return engine_.prepare_adapter(folder);
  }

  /// Engine::render, likewise.
  [[nodiscard]] std::string render(const Request& request, const std::string& chat_template) const {
    return engine_.render(request, chat_template);
  }

  /// Queues a request. Its news go to the sink, exactly one with a completion, the last. Throws
  /// Error when stopped, and std::bad_alloc; then nothing was submitted.
  RequestId submit(Request request, const std::shared_ptr<EventSink>& sink);
  /// The same for Engine::submit_each: returns an id for each, in order.
  std::vector<RequestId> submit_each(Request request, std::vector<RequestVariant> each,
                                     const std::shared_ptr<EventSink>& sink);
  /// Ends a request before the next step; the thread of the engine tells its end. Returns whether
  /// it was unfinished: it may yet end otherwise, where a step is at work that ends it.
  bool cancel(RequestId request) noexcept;

  /// Engine::set_paused before the next step. Nothing happens where the request has ended, or the
  /// engine has not seen it yet.
  void set_paused(RequestId request, bool is_paused);

  /// body(Engine&) in the thread of the engine, between two steps and behind all that was
  /// submitted before. Waits for it; returns what it returns and throws what it throws, and Error
  /// when stopped. A sink may call it, too: then it acts at once, before requests that
  /// the engine has not looked at yet.
  template <class Body>
  auto call(Body body) -> std::invoke_result_t<Body, Engine&> {
    if (std::this_thread::get_id() == thread_id_) return body(engine_);
    using Result = std::invoke_result_t<Body, Engine&>;
    auto task = std::make_shared<std::packaged_task<Result(Engine&)>>(std::move(body));
    std::future<Result> result = task->get_future();
    push({.call = [task](Engine& engine) { (*task)(engine); }});
    return result.get();
  }

  /// The same without waiting: what it throws ends the process, so it does not throw. Throws Error
  /// when stopped; then it is not called.
  void post(std::function<void(Engine&)> body) { push({.call = std::move(body)}); }

  /// body(Engine&) in the thread of the engine between two steps, before all else that waits: for
  /// those who ask what is so now. It does not throw, and takes little time. Throws Error when
  /// stopped; then it is not called.
  void look(std::function<void(const Engine&)> body);
  /// Rows that were submitted and have not been told to end.
  [[nodiscard]] int64_t num_unfinished();

  /// Cancels what is unfinished, tells its ends, and ends the thread. Not to be called by a sink.
  void stop() noexcept;

 private:
  /// A row on its way to the engine and through it.
  struct Row {
    RequestId id = 0;          // as the caller knows it
    RequestId engine_id = -1;  // as the engine does; -1: it does not know the request yet
    std::shared_ptr<EventSink> sink{};
    std::atomic<bool> is_cancelled = false;
    /// A node for `cancelled_`, so that cancelling asks for no memory.
    std::list<std::shared_ptr<Row>> cancelled{1};
  };
  using Rows = std::vector<std::shared_ptr<Row>>;
  /// What waits for the thread: the rows of a request, or a call.
  struct Entry {
    Rows rows{};
    Request request{};
    std::vector<RequestVariant> each{};  // of each row; empty: the request is one row as it is
    std::optional<RequestDraft> draft{};
    std::function<void(Engine&)> call{};
  };
  using Entries = std::list<Entry>;
  using Clock = std::chrono::steady_clock;

  void push(Entry entry);
  std::vector<RequestId> submit_rows(Entry entry, size_t count,
                                     const std::shared_ptr<EventSink>& sink);
  void run() noexcept;
  void run_texts() noexcept;
  [[nodiscard]] bool has_work() const;
  bool take_entries();
  bool wait_for_texts();
  void draft(Entries entry) noexcept;
  void begin(Entry& entry) noexcept;
  void end(const Row& row, std::optional<RowFailure> failure = {}) noexcept;
  void tell(const Row& row, Event&& event) noexcept;
  bool step() noexcept;
  void wait_for_change();
  void cancel_all() noexcept;

  Engine engine_;

  std::mutex mutex_;  // of what stands here
  std::condition_variable arrived_;
  std::condition_variable texts_arrived_;
  // A request goes through them in this order; a call waits in the first until the others have
  // nothing.
  Entries inbox_, at_texts_, encoded_;
  std::vector<std::function<void(const Engine&)>> looks_;
  std::list<std::shared_ptr<Row>> cancelled_;
  std::vector<std::pair<std::shared_ptr<Row>, bool>> paused_;       // and whether it is from now on
  std::unordered_map<RequestId, std::shared_ptr<Row>> unfinished_;  // by the caller's id
  RequestId next_id_ = 0;
  bool is_stopping_ = false;

  // The thread's own:
  OnEnd on_end_;
  std::unordered_map<RequestId, std::shared_ptr<Row>> in_engine_;  // by engine_id
  Clock::time_point texts_until_{};  // how long a step may wait for what is encoded
  std::once_flag stopped_;
  std::thread texts_thread_, thread_;
  std::thread::id thread_id_;  // of thread_; written before anybody can call
};

}  // namespace heddle
