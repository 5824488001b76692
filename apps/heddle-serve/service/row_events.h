#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include "engine/thread/event_queue.h"
#include "http/buffers.h"

namespace heddle::serve {

/// The events of one request's rows, from the thread of the engine to that of the network.
class RowEvents final : public EventSink, public std::enable_shared_from_this<RowEvents> {
 public:
  /// `pause(row, true)` is called by the thread of the engine for a row with an event while more
  /// than `most_bytes` are pending, or more than a few where `buffers` are full, and `pause(row,
  /// false)` when they were taken. `buffers` is shared with rows that end later than the server's
  /// other parts.
  RowEvents(const boost::asio::any_io_executor& network, size_t most_bytes,
            std::shared_ptr<Buffers> buffers, std::function<void(RequestId, bool)> pause)
      : most_bytes_(most_bytes),
        buffers_(std::move(buffers)),
        pause_(std::move(pause)),
        timer_(network) {}
  RowEvents(const RowEvents&) = delete;
  RowEvents& operator=(const RowEvents&) = delete;
  ~RowEvents() override { buffers_->add_events(-static_cast<int64_t>(num_bytes_)); }

  void expect(RequestId request) override { static_cast<void>(request); }
  void forget(RequestId request) noexcept override { static_cast<void>(request); }
  void tell(Event&& event) noexcept override;

  /// What has come since the last call, in the thread of the network; waits for it, but not longer
  /// than `longest`, and not when woken. Nothing where the time is over.
  boost::asio::awaitable<std::optional<std::vector<Event>>> next(std::chrono::milliseconds longest);
  /// Ends the wait of `next`.
  void wake() { timer_.cancel(); }
  /// Whether events were lost for lack of memory.
  [[nodiscard]] bool has_lost() const;

 private:
  std::vector<Event> take();

  const size_t most_bytes_;
  const std::shared_ptr<Buffers> buffers_;
  const std::function<void(RequestId, bool)> pause_;
  mutable std::mutex mutex_;
  std::vector<Event> events_;
  size_t num_bytes_ = 0;  // of the events, about
  std::vector<RequestId> paused_;
  bool has_lost_ = false;
  boost::asio::steady_timer timer_;  // of the thread of the network
};

}  // namespace heddle::serve
