#pragma once

#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "heddle/engine/request.h"

namespace heddle {

/// Takes the events of requests from the thread of the engine to their readers.
class EventSink {
 public:
  EventSink() = default;
  EventSink(const EventSink&) = delete;
  EventSink& operator=(const EventSink&) = delete;
  virtual ~EventSink() = default;

  /// Called by the thread that submits, before the first event of the request: reserves memory.
  virtual void expect(RequestId request) = 0;
  /// Takes `expect` back: the request was not submitted.
  virtual void forget(RequestId request) noexcept = 0;
  /// Called by the thread of the engine between two steps. The request was expected.
  virtual void tell(Event&& event) noexcept = 0;
};

/// Events of requests for readers that take them when they like. What was not taken yet of a
/// request is one event. Its functions may run concurrently.
class EventQueue final : public EventSink {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Tells : uint8_t { kAll, kEnds };  // kEnds: an event for the end of each request alone

  explicit EventQueue(Tells tells = Tells::kAll) : tells_(tells) {}
  ~EventQueue() override;

  void expect(RequestId request) override;
  void forget(RequestId request) noexcept override;
  void tell(Event&& event) noexcept override;

  /// The event of the request that has waited longest for its reader; nothing where there is none
  /// until `deadline`.
  [[nodiscard]] std::optional<Event> next(Clock::time_point deadline);
  /// Requests of which the last event was not taken yet.
  [[nodiscard]] int64_t num_unfinished() const;

  /// A file descriptor that is readable while there may be an event, for event loops; `next` that
  /// returns none makes it not readable. It belongs to the queue. Throws std::system_error.
  [[nodiscard]] int file_descriptor();

 private:
  struct Request {
    Event pending{};
    size_t num_told = 0;     // bytes of the answer that were taken
    bool is_told = true;     // nothing is pending
    bool lost_text = false;  // for lack of memory: what is missing comes with the end
  };
  using Requests = std::list<Request>;

  void signal(bool has_events) const noexcept;

  const Tells tells_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  Requests quiet_, ready_;  // ready_: those with an event, the oldest first
  std::unordered_map<RequestId, Requests::iterator> places_;
  int descriptor_ = -1;
};

}  // namespace heddle
