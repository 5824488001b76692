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

/// An engine with a thread that owns it and runs its steps, and one that checks, renders and
/// tokenizes requests, one after the other in the order in which they came, before they reach the
/// engine. No step waits for that longer than a millisecond. All functions but the constructor and
/// the destructor may run concurrently, in any threads.
class EngineThread {
 public:
  /// Loads the model; throws as Engine does.
  explicit EngineThread(const EngineOptions& options) : EngineThread(Engine(options)) {}
  /// Takes an engine that nothing else uses from here on. The thread calls on_end once where the
  /// engine has ended by itself, with Engine::ended_by, after the ends of the rows of that step.
  using OnEnd = std::function<void(const std::string& ended_by)>;
  explicit EngineThread(Engine engine, OnEnd on_end = {});
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;
  ~EngineThread() { stop(); }

  [[nodiscard]] const ModelInfo& model() const { return engine_.model(); }
  [[nodiscard]] const EngineOptions& options() const { return engine_.options(); }

  // In the thread of the caller, concurrently with steps:

  /// Prepares an adapter of a folder or in memory, and waits until its weights are on the device.
  /// No step waits for that, and where nothing is to be copied it waits for no step.
  template <class Source>
  [[nodiscard]] PreparedAdapter prepare_adapter(const Source& source) {
    const auto adapter = std::make_shared<PreparedAdapter>(engine_.stage_adapter(source));
    std::future<void> begun;
    if (engine_.needs_copy(*adapter)) {
      begun = begin_call([adapter](Engine& engine) { engine.begin_copy(*adapter); });
    }
    engine_.check_adapter(*adapter);  // meanwhile
    if (begun.valid()) begun.get();
    engine_.wait_for_copy(*adapter);
    return std::move(*adapter);
  }
  /// Prepares an adapter and gives it its name by `call`: in place of the one that has it where
  /// `may_replace`.
  template <class Source>
  AdapterInfo load_adapter(const std::string& name, const Source& source, bool may_replace,
                           RunningRequests running = RunningRequests::kFinish) {
    const auto adapter = std::make_shared<PreparedAdapter>(prepare_adapter(source));
    return call([&](Engine& engine) {
      return may_replace ? engine.replace_adapter(name, std::move(*adapter), running)
                         : engine.add_adapter(name, std::move(*adapter));
    });
  }
  [[nodiscard]] std::optional<AdapterReceipt> adapter_receipt(const std::string& name,
                                                              ReceiptNorms norms) const {
    return engine_.adapter_receipt(name, norms);
  }
  [[nodiscard]] std::shared_ptr<const PromptTokenizer> tokenizer(const Request& request) const {
    return engine_.tokenizer(request);
  }
  [[nodiscard]] std::vector<std::string> labels(const Request& request) const {
    return engine_.labels(request);
  }
  [[nodiscard]] std::string render(const Request& request, answers::AnswerStyle& style) const {
    return engine_.render(request, style);
  }
  [[nodiscard]] std::string render(const Request& request, const std::string& chat_template,
                                   answers::AnswerStyle& style) const {
    return engine_.render(request, chat_template, style);
  }

  /// Queues a request. Its events go to the sink, exactly one with a completion, the last. Throws
  /// Error when stopped, and std::bad_alloc; then nothing was submitted.
  RequestId submit(Request request, const std::shared_ptr<EventSink>& sink);
  /// Queues a request as Engine::submit_each does: returns an id for each row, in order.
  std::vector<RequestId> submit_each(Request request, std::vector<RequestVariant> each,
                                     const std::shared_ptr<EventSink>& sink);
  /// Ends a request before the next step; the thread of the engine reports its end. Returns whether
  /// it was unfinished: it may yet end otherwise, where a step in flight ends it.
  bool cancel(RequestId request) noexcept;

  /// Engine::set_paused before the next step. Nothing happens where the request has ended, or the
  /// engine has not seen it yet.
  void set_paused(RequestId request, bool is_paused);

  /// Engine::reset_prefix_cache before the next step, and before the engine sees any request that
  /// is submitted after this returns. Does not wait; nothing happens when stopped.
  void reset_prefix_cache() noexcept;

  /// body(Engine&) in the thread of the engine, between two steps and after all that was submitted
  /// before. Requests that are submitted later are checked after it. Waits for it; returns what it
  /// returns and throws what it throws, and Error when stopped. A sink may call it, too: then it
  /// runs at once, before requests that the engine has not seen yet. Not to be called by what
  /// `post_texts` runs.
  template <class Body>
  auto call(Body body) -> std::invoke_result_t<Body, Engine&> {
    return begin_call(std::move(body)).get();
  }
  /// `call` that does not wait: the outcome is the future's.
  template <class Body>
  auto begin_call(Body body) -> std::future<std::invoke_result_t<Body, Engine&>> {
    using Result = std::invoke_result_t<Body, Engine&>;
    const auto task = std::make_shared<std::packaged_task<Result(Engine&)>>(std::move(body));
    std::future<Result> result = task->get_future();
    if (std::this_thread::get_id() == thread_id_) {
      (*task)(engine_);
    } else {
      push({.call = [task](Engine& engine) { (*task)(engine); }});
    }
    return result;
  }

  /// `call` without waiting and without an outcome: what it throws ends the process, so it does not
  /// throw. Throws Error when stopped; then it is not called.
  void post(std::function<void(Engine&)> body) { push({.call = std::move(body)}); }
  /// body() in the thread of texts, in its turn among the requests. It does not throw. Throws Error
  /// when stopped; then it is not called.
  void post_texts(std::function<void()> body) { push({.texts = std::move(body)}); }

  /// body(Engine&) in the thread of the engine between two steps, before all that waits: for
  /// callers that report the state of this moment. It does not throw, and takes little time. Throws
  /// Error when stopped; then it is not called.
  void look(std::function<void(const Engine&)> body);
  /// Rows that were submitted and whose end was not reported yet.
  [[nodiscard]] int64_t num_unfinished();

  /// Cancels what is unfinished, reports its ends, and ends the threads. No sink may call it.
  void stop() noexcept;

 private:
  /// A row on its way to the engine and through it.
  struct Row {
    RequestId id = 0;          // as the caller knows it
    RequestId engine_id = -1;  // as the engine does; -1: it does not know the request yet
    std::shared_ptr<EventSink> sink{};
    std::atomic<bool> is_cancelled = false;
    /// A node for `cancelled_`, so that cancelling allocates nothing.
    std::list<std::shared_ptr<Row>> cancelled{1};
  };
  using Rows = std::vector<std::shared_ptr<Row>>;
  /// What waits for the threads: the rows of a request, a call or a function of `post_texts`.
  struct Entry {
    Rows rows{};
    Request request{};
    std::vector<RequestVariant> each{};       // of each row; empty: the request is one row as it is
    std::optional<EncodedRequest> encoded{};  // by the thread of texts; absent: for lack of memory
    std::function<void(Engine&)> call{};
    std::function<void()> texts{};
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
  void encode(Entry& entry) noexcept;
  void begin(Entry& entry) noexcept;
  void end(const Row& row, std::optional<RowFailure> failure = {}) noexcept;
  void tell(const Row& row, Event&& event) noexcept;
  bool step() noexcept;
  void wait_for_change();
  void cancel_all() noexcept;

  Engine engine_;

  // With the mutex:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable texts_arrived_;
  Entries inbox_;  // for the thread of texts
  Entries ready_;  // for the thread of the engine: what is encoded, and calls
  /// A call is in `ready_` or runs. It may change which adapters there are, so the thread of texts
  /// waits for its end.
  bool is_calling_ = false;
  std::vector<std::function<void(const Engine&)>> looks_;
  std::list<std::shared_ptr<Row>> cancelled_;
  std::vector<std::pair<std::shared_ptr<Row>, bool>> paused_;       // and whether it is from now on
  std::unordered_map<RequestId, std::shared_ptr<Row>> unfinished_;  // by the caller's id
  RequestId next_id_ = 0;
  Clock::time_point texts_until_{};  // how long a step may wait for what is encoded
  bool is_resetting_ = false;        // the prefix cache, before the next step
  bool is_stopping_ = false;

  // The thread's own:
  OnEnd on_end_;
  std::unordered_map<RequestId, std::shared_ptr<Row>> in_engine_;  // by engine_id
  std::once_flag stopped_;
  std::thread texts_thread_, thread_;
  std::thread::id thread_id_;  // of thread_; written before any thread can call
};

}  // namespace heddle
