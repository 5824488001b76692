#include "engine/row_news.h"

#include <new>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "memory.h"

namespace heddle::serve {

void RowNews::tell(Event&& event) noexcept {
  bool was_empty = false;
  try {
    {
      const std::lock_guard lock(mutex_);
      was_empty = events_.empty();
      num_bytes_ += sizeof event + event.text.size() + event.tokens.top_ids.size() * 8;
      if (num_bytes_ > most_bytes_ && !event.completion) {
        paused_.push_back(event.request);
        pause_(event.request, true);  // within the lock: `take` undoes it later, never before
      }
      events_.push_back(std::move(event));
    }
  } catch (const std::exception&) {
    const std::lock_guard lock(mutex_);
    has_lost_ = true;
    was_empty = true;
  }
  if (!was_empty) return;
  retry_for_memory([&] {
    boost::asio::post(timer_.get_executor(), [self = shared_from_this()] { self->wake(); });
  });
}

std::vector<Event> RowNews::take() {
  const std::lock_guard lock(mutex_);
  for (; !paused_.empty(); paused_.pop_back()) pause_(paused_.back(), false);
  num_bytes_ = 0;
  return std::exchange(events_, {});
}

boost::asio::awaitable<std::optional<std::vector<Event>>> RowNews::next(
    std::chrono::milliseconds longest) {
  std::vector<Event> events = take();
  if (!events.empty() || has_lost()) co_return events;
  timer_.expires_after(longest);
  boost::system::error_code woken;
  co_await timer_.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, woken));
  events = take();
  if (events.empty() && !woken) co_return std::nullopt;
  co_return events;
}

bool RowNews::has_lost() const {
  const std::lock_guard lock(mutex_);
  return has_lost_;
}

}  // namespace heddle::serve
