#include "engine/thread/event_queue.h"

#include <cerrno>
#include <new>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace heddle {

EventQueue::~EventQueue() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void EventQueue::expect(RequestId request) {
  const std::lock_guard lock(mutex_);
  Requests added(1);
  added.front().pending.request = request;
  places_.emplace(request, added.begin());
  quiet_.splice(quiet_.end(), added);
}

void EventQueue::forget(RequestId request) noexcept {
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(request);
  quiet_.erase(place->second);
  places_.erase(place);
}

void EventQueue::tell(Event&& event) noexcept {
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(event.request)->second;
  Request& request = *place;
  Event& pending = request.pending;
  const bool has_ended = event.completion.has_value();
  pending.prompt_tokens = event.prompt_tokens;
  pending.cached_tokens = event.cached_tokens;
  if (tells_ == Tells::kAll && !request.lost_text) {
    try {
      pending.text += event.text;
    } catch (const std::bad_alloc&) {
      request.lost_text = true;
    }
  }
  if (has_ended) {
    pending.completion = std::move(event.completion);
    if (request.lost_text) {
      try {
        pending.text = pending.completion->text.substr(request.num_told);
      } catch (const std::bad_alloc&) {  // the completion has it
      }
    }
  }
  if (!has_ended && (tells_ == Tells::kEnds || pending.text.empty())) return;
  if (std::exchange(request.is_told, false)) ready_.splice(ready_.end(), quiet_, place);
  signal(true);
  arrived_.notify_one();
}

std::optional<Event> EventQueue::next(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  if (!arrived_.wait_until(lock, deadline, [this] { return !ready_.empty(); })) {
    signal(false);
    return std::nullopt;
  }
  Request& request = ready_.front();
  Event event = std::exchange(request.pending, {.request = request.pending.request});
  if (event.completion) {
    places_.erase(event.request);
    ready_.pop_front();
  } else {
    request.num_told += event.text.size();
    request.is_told = true;
    quiet_.splice(quiet_.end(), ready_, ready_.begin());
  }
  return event;
}

int64_t EventQueue::num_unfinished() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(places_.size());
}

int EventQueue::file_descriptor() {
  const std::lock_guard lock(mutex_);
  if (descriptor_ < 0) {
    descriptor_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    signal(!ready_.empty());
  }
  return descriptor_;
}

void EventQueue::signal(bool has_events) const noexcept {
  if (descriptor_ < 0) return;
  uint64_t count = 1;
  // Neither can fail in a way that matters: full and empty are as good as written and read.
  const ssize_t bytes = has_events ? ::write(descriptor_, &count, sizeof count)
                                   : ::read(descriptor_, &count, sizeof count);
  static_cast<void>(bytes);
}

}  // namespace heddle
