#include "service/row_events.h"

#include <new>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "memory.h"

namespace heddle::serve {
namespace {

constexpr size_t kFewBytes = 16 << 10;  // that may be pending of a row though the buffers are full

/// About what it takes in memory.
size_t bytes_of(const Event& event) {
  const auto of_tokens = [](const auto& ids, const auto& tops) {
    return ids.size() * 8 + tops.size() * 8;
  };
  size_t bytes =
      sizeof event + event.text.size() + of_tokens(event.tokens.ids, event.tokens.top_ids);
  if (event.completion) {
    const Completion& answer = *event.completion;
    bytes += answer.text.size() + answer.values.size() * sizeof(float) +
             of_tokens(answer.token_ids, answer.top_token_ids) +
             of_tokens(answer.prompt_token_ids, answer.prompt_top_token_ids);
  }
  return bytes;
}

}  // namespace

void RowEvents::tell(Event&& event) noexcept {
  bool was_empty = false;
  try {
    {
      const std::lock_guard lock(mutex_);
      was_empty = events_.empty();
      const size_t num_bytes = bytes_of(event);
      num_bytes_ += num_bytes;
      buffers_->add_events(static_cast<int64_t>(num_bytes));
      const bool is_much =
          num_bytes_ > most_bytes_ || (num_bytes_ > kFewBytes && buffers_->is_full());
      if (is_much && !event.completion) {
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

std::vector<Event> RowEvents::take() {
  const std::lock_guard lock(mutex_);
  for (; !paused_.empty(); paused_.pop_back()) pause_(paused_.back(), false);
  buffers_->add_events(-static_cast<int64_t>(std::exchange(num_bytes_, 0)));
  return std::exchange(events_, {});
}

boost::asio::awaitable<std::optional<std::vector<Event>>> RowEvents::next(
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

bool RowEvents::has_lost() const {
  const std::lock_guard lock(mutex_);
  return has_lost_;
}

}  // namespace heddle::serve
