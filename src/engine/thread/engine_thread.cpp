#include "engine/thread/engine_thread.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>

#include "heddle/core/error.h"

namespace heddle {
namespace {

/// How long the engine may take requests in a row while others run: many of them must not delay
/// the next step.
constexpr std::chrono::milliseconds kLookTime{10};
/// How long a step waits for requests that were just submitted: most are encoded by then, and run
/// one step sooner.
constexpr std::chrono::milliseconds kTextsTime{1};
/// How often a thread whose rows are all paused looks for work: a row that waits may fit by now.
constexpr std::chrono::milliseconds kPauseLook{5};

bool is_cancelled(const auto& rows) {
  return std::ranges::all_of(rows, [](const auto& row) { return row->is_cancelled.load(); });
}

}  // namespace

EngineThread::EngineThread(Engine engine, OnEnd on_end)
    : engine_(std::move(engine)), on_end_(std::move(on_end)) {
  try {
    texts_thread_ = std::thread([this] { run_texts(); });
    thread_ = std::thread([this] { run(); });
    thread_id_ = thread_.get_id();
  } catch (const std::system_error& error) {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    texts_arrived_.notify_one();
    if (texts_thread_.joinable()) texts_thread_.join();
    throw_error(ErrorCode::kOutOfMemory, "cannot start a thread of the engine: ", error.what());
  }
}

void EngineThread::push(Entry entry) {
  {
    const std::lock_guard lock(mutex_);
    HEDDLE_CHECK(!is_stopping_, "the engine is closed");
    inbox_.push_back(std::move(entry));
  }
  texts_arrived_.notify_one();
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
    texts_until_ = Clock::now() + kTextsTime;
  }
  texts_arrived_.notify_one();
  return ids;
}

bool EngineThread::cancel(RequestId request) noexcept {
  {
    const std::lock_guard lock(mutex_);
    const auto place = unfinished_.find(request);
    if (place == unfinished_.end()) return false;
    if (place->second->is_cancelled) return true;
    Row& row = *place->second;
    row.cancelled.front() = place->second;
    cancelled_.splice(cancelled_.end(), row.cancelled);
    row.is_cancelled = true;
  }
  arrived_.notify_one();
  return true;
}

void EngineThread::set_paused(RequestId request, bool is_paused) {
  {
    const std::lock_guard lock(mutex_);
    const auto place = unfinished_.find(request);
    if (place == unfinished_.end()) return;
    paused_.emplace_back(place->second, is_paused);
  }
  arrived_.notify_one();
}

void EngineThread::reset_prefix_cache() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_resetting_ = true;
  }
  arrived_.notify_one();
}

void EngineThread::look(std::function<void(const Engine&)> body) {
  {
    const std::lock_guard lock(mutex_);
    HEDDLE_CHECK(!is_stopping_, "the engine is closed");
    looks_.push_back(std::move(body));
  }
  arrived_.notify_one();
}

int64_t EngineThread::num_unfinished() {
  const std::lock_guard lock(mutex_);
  return std::ssize(unfinished_);
}

void EngineThread::stop() noexcept {
  std::call_once(stopped_, [this] {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    arrived_.notify_one();
    texts_arrived_.notify_one();
    thread_.join();
  });
}

void EngineThread::run() noexcept {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      const bool is_idle = engine_.num_unfinished() == 0;
      arrived_.wait(lock, [&] { return !is_idle || is_stopping_ || has_work(); });
      if (is_stopping_) break;
    }
    const Clock::time_point begin = Clock::now();
    while (take_entries() || wait_for_texts()) {
      const bool may_look = Clock::now() - begin < kLookTime;
      if (!may_look && engine_.num_unfinished() > 0) break;
    }
    if (engine_.num_unfinished() > 0 && !step()) wait_for_change();
  }
  cancel_all();
}

/// The thread of texts.
void EngineThread::run_texts() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    texts_arrived_.wait(lock, [this] { return is_stopping_ || (!inbox_.empty() && !is_calling_); });
    if (is_stopping_) return;
    Entry& entry = inbox_.front();
    if (entry.call) {
      is_calling_ = true;
    } else {
      lock.unlock();
      encode(entry);
      lock.lock();
    }
    if (!entry.call && entry.rows.empty()) {
      inbox_.pop_front();
      continue;
    }
    ready_.splice(ready_.end(), inbox_, inbox_.begin());
    arrived_.notify_one();
  }
}

/// Whether `take_entries` has something to do. With the lock.
bool EngineThread::has_work() const {
  return !ready_.empty() || !cancelled_.empty() || !paused_.empty() || !looks_.empty() ||
         is_resetting_;
}

/// Cancels what is to be cancelled, pauses what is to be paused, resets the prefix cache, calls the
/// functions of `look`, and takes one entry; returns whether there was one.
bool EngineThread::take_entries() {
  std::list<std::shared_ptr<Row>> cancelled;
  std::vector<std::pair<std::shared_ptr<Row>, bool>> paused;
  std::vector<std::function<void(const Engine&)>> looks;
  Entries entry;
  bool is_reset = false;
  {
    const std::lock_guard lock(mutex_);
    is_reset = std::exchange(is_resetting_, false);
    looks.swap(looks_);
    cancelled.swap(cancelled_);
    paused.swap(paused_);
    if (!ready_.empty()) entry.splice(entry.end(), ready_, ready_.begin());
  }
  for (const std::shared_ptr<Row>& row : cancelled) {
    if (row->engine_id >= 0) (void)engine_.cancel(row->engine_id);
  }
  for (const auto& [row, is_paused] : paused) {
    if (row->engine_id >= 0) (void)engine_.set_paused(row->engine_id, is_paused);
  }
  if (is_reset) engine_.reset_prefix_cache();
  for (const auto& look : looks) look(engine_);
  if (entry.empty()) return false;
  if (!entry.front().call) {
    begin(entry.front());
    return true;
  }
  entry.front().call(engine_);
  {
    const std::lock_guard lock(mutex_);
    is_calling_ = false;
  }
  texts_arrived_.notify_one();
  return true;
}

/// Whether a request is encoded by now; waits a short while for one that was just submitted.
bool EngineThread::wait_for_texts() {
  std::unique_lock lock(mutex_);
  if (inbox_.empty()) return !ready_.empty();
  return arrived_.wait_until(lock, texts_until_, [this] {
    return is_stopping_ || !ready_.empty();
  }) && !is_stopping_;
}

/// What the thread of texts does with an entry.
void EngineThread::encode(Entry& entry) noexcept {
  if (entry.texts) return std::exchange(entry.texts, nullptr)();
  if (is_cancelled(entry.rows)) return;
  try {
    entry.encoded = entry.each.empty() ? engine_.encode(std::move(entry.request))
                                       : engine_.encode_each(std::move(entry.request), entry.each);
  } catch (const std::bad_alloc&) {  // reported by `begin`
  }
}

/// Hands the rows of a request to the engine.
void EngineThread::begin(Entry& entry) noexcept {
  if (is_cancelled(entry.rows)) {
    for (const auto& row : entry.rows) end(*row);
    return;
  }
  std::vector<RequestId> ids;
  try {
    if (!entry.encoded) throw std::bad_alloc();  // as `encode` did
    ids = engine_.submit(*std::move(entry.encoded));
    for (size_t i = 0; i < ids.size(); ++i) in_engine_.emplace(ids[i], entry.rows[i]);
  } catch (const std::bad_alloc&) {
    for (const RequestId id : ids) {
      (void)engine_.cancel(id);
      in_engine_.erase(id);
    }
    for (const auto& row : entry.rows) {
      end(*row,
          RowFailure{RequestError::kOutOfMemory, "out of memory: the row could not be submitted"});
    }
    return;
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    Row& row = *entry.rows[i];
    row.engine_id = ids[i];
    if (row.is_cancelled) (void)engine_.cancel(row.engine_id);
  }
}

/// Ends a row that the engine does not know: cancelled, where nothing has failed.
void EngineThread::end(const Row& row, std::optional<RowFailure> failure) noexcept {
  Completion completion;
  completion.finish_reason = failure ? FinishReason::kError : FinishReason::kCancelled;
  if (failure) {
    completion.error_code = failure->code;
    try {
      completion.error = failure->sentence;
    } catch (const std::bad_alloc&) {  // the code says enough
    }
  }
  tell(row, {.completion = std::move(completion)});
}

void EngineThread::tell(const Row& row, Event&& event) noexcept {
  event.request = row.id;
  // The map may have the last reference to `row`.
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
  arrived_.wait_for(lock, kPauseLook, [this] { return is_stopping_ || has_work(); });
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
  } catch (const std::bad_alloc&) {  // for the list of events, which come with the next step
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
  if (on_end_ && !engine_.ended_by().empty()) std::exchange(on_end_, {})(engine_.ended_by());
  return !events.empty() || num_steps() > num_before;
}

void EngineThread::cancel_all() noexcept {
  texts_thread_.join();
  for (const auto& [id, row] : in_engine_) (void)engine_.cancel(id);
  while (engine_.num_unfinished() > 0) (void)step();
  Entries left;
  std::vector<std::function<void(const Engine&)>> looks;
  {
    const std::lock_guard lock(mutex_);
    looks.swap(looks_);
    for (Entries* entries : {&ready_, &inbox_}) left.splice(left.end(), *entries);
  }
  for (const auto& look : looks) look(engine_);
  for (Entry& entry : left) {
    if (entry.call) entry.call(engine_);
    if (entry.texts) entry.texts();
    for (const auto& row : entry.rows) end(*row);
  }
}

}  // namespace heddle
