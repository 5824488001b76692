// When rows pause for a reader that is slow, and when they go on.
#include "service/row_events.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "http/buffers.h"

namespace heddle::serve {
namespace {

constexpr size_t kMostBytes = 4096;

class RowEventsTest : public ::testing::Test {
 protected:
  void tell(RequestId row, size_t num_bytes, bool is_last = false) {
    Event event{.request = row, .text = std::string(num_bytes, 'x')};
    if (is_last) event.completion.emplace();
    events_->tell(std::move(event));
  }
  /// How many events the reader takes.
  size_t take() {
    size_t count = 0;
    boost::asio::co_spawn(
        network_,
        [&]() -> boost::asio::awaitable<void> {
          const std::optional<std::vector<Event>> events =
              co_await events_->next(std::chrono::minutes(1));
          if (events) count = events->size();
        },
        boost::asio::detached);
    network_.run();
    network_.restart();
    return count;
  }

  using Pauses = std::vector<std::pair<RequestId, bool>>;
  boost::asio::io_context network_;
  Pauses pauses_;
  std::shared_ptr<RowEvents> events_ = std::make_shared<RowEvents>(
      network_.get_executor(), kMostBytes, std::make_shared<Buffers>(int64_t{1} << 30),
      [this](RequestId row, bool is_paused) { pauses_.emplace_back(row, is_paused); });
};

TEST_F(RowEventsTest, ARowThatFindsNoRoomPausesUntilItsEventsAreTaken) {
  tell(1, kMostBytes / 2);
  EXPECT_EQ(pauses_, Pauses{});
  tell(2, kMostBytes / 2);
  tell(3, 1, true);  // there is nothing of it to pause
  EXPECT_EQ(pauses_, (Pauses{{2, true}}));
  EXPECT_EQ(take(), 3u);
  EXPECT_EQ(pauses_, (Pauses{{2, true}, {2, false}}));
}

/// What was taken takes no room: a stream may be longer than the room of its reader.
TEST_F(RowEventsTest, WhatWasTakenCountsNoMore) {
  for (int i = 0; i < 20; ++i) {
    tell(1, kMostBytes / 4);
    tell(2, kMostBytes / 4);
    EXPECT_EQ(take(), 2u);
  }
  EXPECT_EQ(pauses_, Pauses{});
}

}  // namespace
}  // namespace heddle::serve
