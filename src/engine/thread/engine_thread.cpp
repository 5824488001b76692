#include "engine/thread/engine_thread.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>

#include "heddle/core/error.h"

namespace heddle {
namespace {

/// How long requests that have come may be looked at while rows run: tokenizing many of them must
/// not hold up the others.
constexpr std::chrono::milliseconds kLookTime{10};
/// How often a thread looks for work whose rows are all paused: one that waits may fit by now.
constexpr std::chrono::milliseconds kPauseLook{5};

}  // namespace

EngineThread::EngineThread(Engine engine) : engine_(std::move(engine)) {
  try {
    thread_ = std::thread([this] { run(); });
    thread_id_ = thread_.get_id();
  } catch (const std::system_error& error) {
    throw_error(ErrorCode::kOutOfMemory, "the system gives the engine no thread: ", error.what());
  }
}

void EngineThread::push(Entry entry) {
  {
    const std::lock_guard lock(mutex_);
    HEDDLE_CHECK(!is_stopping_, "the engine is closed");
    inbox_.push_back(std::move(entry));
  }
  arrived_.notify_one();
}

RequestId EngineThread::submit(Request request, const std::shared_ptr<EventSink>& sink) {
  return submit_rows({.request = std::move(request)}, 1, sink).front();
}

std::vector<RequestId> EngineThread::submit_each(Request request, std::vector<RequestVariant> each,
                                                 const std::shared_ptr<EventSink>& sink) {
  const size_t count = each.size();
  if (count == 0) return {};
  return submit_rows({.request = std::move(request), .each = std::move(each)}, count, sink);
}

/// Queues a request of `count` rows, all or none of them.
std::vector<RequestId> EngineThread::submit_rows(Entry entry, size_t count,
                                                 const std::shared_ptr<EventSink>& sink) {
  for (size_t i = 0; i < count; ++i) {
    entry.rows.push_back(std::make_shared<Row>());
    entry.rows.back()->sink = sink;
  }
  const Rows rows = entry.rows;
  std::vector<RequestId> ids;
  ids.reserve(count);
  {
    const std::lock_guard lock(mutex_);
    HEDDLE_CHECK(!is_stopping_, "the engine is closed");
    inbox_.push_back(std::move(entry));
    size_t num_expected = 0;
    try {
      for (const std::shared_ptr<Row>& row : rows) {
        row->id = next_id_ + std::ssize(ids);
        unfinished_.emplace(row->id, row);
        ids.push_back(row->id);
        sink->expect(row->id);
        ++num_expected;
      }
    } catch (...) {
      for (const RequestId id : ids) unfinished_.erase(id);
      for (size_t i = 0; i < num_expected; ++i) sink->forget(ids[i]);
      inbox_.pop_back();
      throw;
    }
    next_id_ += std::ssize(ids);
  }
  arrived_.notify_one();
  return ids;
}

bool EngineThread::cancel(RequestId request) {
  {
    const std::lock_guard lock(mutex_);
    const auto place = unfinished_.find(request);
    if (place == unfinished_.end()) return false;
    if (place->second->is_cancelled) return true;
    cancelled_.push_back(place->second);
    place->second->is_cancelled = true;
  }
  arrived_.notify_one();
  return true;
}

void EngineThread::set_paused(RequestId request, bool is_paused) {
  std::shared_ptr<Row> row;
  {
    const std::lock_guard lock(mutex_);
    const auto place = unfinished_.find(request);
    if (place == unfinished_.end()) return;
    row = place->second;
  }
  push({.call = [row, is_paused](Engine& engine) {
    if (row->engine_id >= 0) (void)engine.set_paused(row->engine_id, is_paused);
  }});
}

void EngineThread::stop() noexcept {
  std::call_once(stopped_, [this] {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    arrived_.notify_one();
    thread_.join();
  });
}

void EngineThread::run() noexcept {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      const bool is_idle = engine_.num_unfinished() == 0;
      arrived_.wait(
          lock, [&] { return !is_idle || is_stopping_ || !inbox_.empty() || !cancelled_.empty(); });
      if (is_stopping_) break;
    }
    const auto begin = std::chrono::steady_clock::now();
    while (take_entries()) {
      const bool may_look = std::chrono::steady_clock::now() - begin < kLookTime;
      if (!may_look && engine_.num_unfinished() > 0) break;
    }
    if (engine_.num_unfinished() > 0 && !step()) wait_for_change();
  }
  cancel_all();
}

/// Cancels what is to be cancelled and takes the first entry of the inbox; returns whether there
/// was one.
bool EngineThread::take_entries() {
  std::vector<std::shared_ptr<Row>> cancelled;
  Entry first;
  bool has_entry = false;
  {
    const std::lock_guard lock(mutex_);
    cancelled.swap(cancelled_);
    has_entry = !inbox_.empty();
    if (has_entry) {
      first = std::move(inbox_.front());
      inbox_.pop_front();
    }
  }
  for (const std::shared_ptr<Row>& row : cancelled) {
    if (row->engine_id >= 0) (void)engine_.cancel(row->engine_id);
  }
  if (first.call) first.call(engine_);
  if (!first.rows.empty()) begin(first);
  return has_entry;
}

/// Hands the rows of a request to the engine.
void EngineThread::begin(const Entry& entry) noexcept {
  const auto is_cancelled = [](const std::shared_ptr<Row>& row) {
    return row->is_cancelled.load();
  };
  if (std::ranges::all_of(entry.rows, is_cancelled)) {
    for (const auto& row : entry.rows) end(*row, FinishReason::kCancelled, "");
    return;
  }
  std::vector<RequestId> ids;
  try {
    ids.reserve(1);
    if (entry.each.empty()) {
      ids.push_back(engine_.submit(entry.request));
    } else {
      ids = engine_.submit_each(entry.request, entry.each);
    }
    for (size_t i = 0; i < ids.size(); ++i) in_engine_.emplace(ids[i], entry.rows[i]);
  } catch (const std::bad_alloc&) {
    for (const RequestId id : ids) {
      (void)engine_.cancel(id);
      in_engine_.erase(id);
    }
    for (const auto& row : entry.rows) {
      end(*row, FinishReason::kError, "out of memory: the row could not be submitted");
    }
    return;
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    Row& row = *entry.rows[i];
    row.engine_id = ids[i];
    if (row.is_cancelled) (void)engine_.cancel(row.engine_id);
  }
}

/// Ends a row that the engine does not know.
void EngineThread::end(const Row& row, FinishReason reason, const char* error) noexcept {
  Completion completion;
  completion.finish_reason = reason;
  try {
    completion.error = error;
  } catch (const std::bad_alloc&) {  // the reason tells enough
  }
  tell(row, {.completion = std::move(completion)});
}

void EngineThread::tell(const Row& row, Event&& event) noexcept {
  event.request = row.id;
  // `row` may be kept by the map alone.
  const std::shared_ptr<EventSink> sink = row.sink;
  if (event.completion) {
    const std::lock_guard lock(mutex_);
    unfinished_.erase(row.id);
  }
  sink->tell(std::move(event));
}

/// After a step that had nothing to do, since all rows that run are paused.
void EngineThread::wait_for_change() {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, kPauseLook,
                    [&] { return is_stopping_ || !inbox_.empty() || !cancelled_.empty(); });
}

/// Returns whether there was anything to do.
bool EngineThread::step() noexcept {
  const auto num_steps = [this] {
    return engine_.stats().prefill_steps + engine_.stats().decode_steps;
  };
  const int64_t num_before = num_steps();
  std::vector<Event> events;
  try {
    events = engine_.step();
  } catch (const std::bad_alloc&) {  // for the list of events, which the next step gives then
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return true;
  }
  for (Event& event : events) {
    const auto place = in_engine_.find(event.request);
    if (place == in_engine_.end()) continue;  // ended in `begin`
    const std::shared_ptr<Row> row = place->second;
    if (event.completion) in_engine_.erase(place);
    tell(*row, std::move(event));
  }
  return !events.empty() || num_steps() > num_before;
}

void EngineThread::cancel_all() noexcept {
  for (const auto& [id, row] : in_engine_) (void)engine_.cancel(id);
  while (engine_.num_unfinished() > 0) (void)step();
  for (;;) {
    Entry first;
    {
      const std::lock_guard lock(mutex_);
      if (inbox_.empty()) return;
      first = std::move(inbox_.front());
      inbox_.pop_front();
    }
    if (first.call) first.call(engine_);
    for (const auto& row : first.rows) end(*row, FinishReason::kCancelled, "");
  }
}

}  // namespace heddle
