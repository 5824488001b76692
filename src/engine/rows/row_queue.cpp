#include "engine/rows/row_queue.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <new>

#include "engine/rows/scheduler.h"

namespace heddle {
namespace {

/// Bytes of an error that every request has room for.
constexpr size_t kErrorBytes = 80;

void set_error(Completion& completion, const RowFailure& failure) noexcept {
  completion.error_code = failure.code;
  try {
    completion.error = failure.sentence;
  } catch (const std::bad_alloc&) {
    completion.error = failure.sentence.substr(0, kErrorBytes);
  }
}

/// Room for the longest answer.
void reserve_answer(Sequence& sequence) {
  const RowRequest& request = sequence.request;
  Completion& to = sequence.answer.completion;
  const auto longest = static_cast<size_t>(request.max_tokens - request.prompt_tokens);
  const auto k = static_cast<size_t>(request.top_logprobs);
  sequence.tokens.reserve(static_cast<size_t>(request.max_tokens));
  to.token_ids.reserve(longest);
  to.logprobs.reserve(longest);
  to.top_token_ids.reserve(longest * k);
  to.top_logprobs.reserve(longest * k);
  if (sequence.adjustment != nullptr)
    sequence.adjustment->reserve(request.max_tokens - request.prompt_tokens);
  if (!request.scores_prompt) return;
  const auto prompt = static_cast<size_t>(request.prompt_tokens);
  to.prompt_logprobs.assign(prompt, std::numeric_limits<float>::quiet_NaN());
  to.prompt_top_token_ids.assign(prompt * k, -1);
  to.prompt_top_logprobs.assign(prompt * k, std::numeric_limits<float>::quiet_NaN());
}

/// Positions at the beginning of two sequences that have the same keys and values, bit for bit: the
/// tokens are equal, and so are the adapters, or they change nothing there.
int64_t num_common(const Sequence& a, const Sequence& b) {
  const auto length =
      static_cast<size_t>(std::min(a.request.prompt_tokens, b.request.prompt_tokens));
  const auto first = std::span(a.tokens).first(length), second = std::span(b.tokens).first(length);
  const int64_t same_tokens = std::ranges::mismatch(first, second).in1 - first.begin();
  constexpr auto kScale = &model::AdapterUse::scale;
  const bool same_scales = std::ranges::equal(a.adapters.uses, b.adapters.uses, {}, kScale, kScale);
  if (a.adapters.holds == b.adapters.holds && same_scales) return same_tokens;
  return std::min({same_tokens, a.adapters.keys_from, b.adapters.keys_from});
}

}  // namespace

void share_prefix(Sequence& sequence, std::span<Sequence* const> others, int64_t page_size) {
  RowCache& cache = sequence.cache;
  for (const Sequence* other : others) {
    const int64_t common =
        std::min(num_common(sequence, *other), sequence.request.prompt_tokens - 1);
    const int64_t num_shared = common / page_size * page_size;
    if (num_shared <= cache.num_shared) continue;
    cache.leader = other->id;
    cache.num_shared = num_shared;
  }
}

Sequences RowQueue::make_row(RequestId id) {
  Sequences one(1);
  one.front().id = id;
  one.front().answer.completion.error.reserve(kErrorBytes);
  return one;
}

void RowQueue::refuse(Sequences&& one, const RowFailure& failure) noexcept {
  Sequence& sequence = one.front();
  sequence.answer.completion.finish_reason = FinishReason::kError;
  set_error(sequence.answer.completion, failure);
  sequence.adapters = {};
  ended_.splice(ended_.end(), one);
}

void RowQueue::end(Sequence& sequence, FinishReason reason) noexcept {
  sequence.answer.completion.finish_reason = reason;
  sequence.answer.has_ended = true;
  const int64_t awaited = num_awaited(sequence);
  sequence.cache.pages.shrink_to(awaited / page_size_);
  if (awaited == 0) sequence.cache.pages = {};
  sequence.tokens = {};
  sequence.adapters = {};
  sequence.adjustment = nullptr;
  for (Sequences* list : {&running_, &waiting_}) {
    const auto place = std::ranges::find(*list, &sequence, [](const Sequence& s) { return &s; });
    if (place != list->end()) return ended_.splice(ended_.end(), *list, place);
  }
}

void RowQueue::fail(Sequence& sequence, const RowFailure& failure) noexcept {
  set_error(sequence.answer.completion, failure);
  end(sequence, FinishReason::kError);
}

void RowQueue::fail_all(const RowFailure& failure) noexcept {
  for (Sequences* list : {&running_, &waiting_}) {
    while (!list->empty()) fail(list->front(), failure);
  }
}

/// Reserves what the sequence needs until its end; returns whether it fits.
bool RowQueue::start(Sequence& sequence) {
  RowCache& cache = sequence.cache;
  const int64_t num_pages = pages_for_row(sequence.request.max_tokens, page_size_);
  const Sequence* const leader = find_leader(sequence);
  if (leader != nullptr && leader->cache.num_cached < cache.num_shared) return false;
  std::optional<ReservedPages> pages =
      leader == nullptr
          ? pages_.reserve(num_pages)
          : pages_.reserve_shared(leader->cache.pages, cache.num_shared / page_size_, num_pages);
  if (!pages) return false;
  if (adapters_ != nullptr) adapters_->take(sequence);
  reserve_answer(sequence);
  cache.pages = std::move(*pages);
  if (leader != nullptr) cache.num_cached = cache.num_shared;
  cache.leader = -1;
  return true;
}

/// Of the requests that wait longest.
std::span<const Admission> RowQueue::schedule() noexcept {
  scheduled_.clear();
  for (const Sequence& sequence : waiting_) {
    if (scheduled_.size() == kMaxScheduledRows) break;
    scheduled_.push_back(&sequence);
  }
  return adapters_->schedule(scheduled_);
}

void RowQueue::admit() noexcept {
  while (start_scheduled()) {  // the next ones, where all of a schedule were looked at
  }
  free_kept();
}

/// Starts requests of one schedule. Returns whether all of it were looked at and some have left the
/// queue, so that the next schedule has others.
bool RowQueue::start_scheduled() noexcept {
  std::span<const Admission> admissions;
  if (adapters_ != nullptr && !waiting_.empty()) admissions = schedule();
  bool any = false;
  auto next = waiting_.begin();
  for (size_t i = 0; next != waiting_.end() && std::ssize(running_) < max_batch_;) {
    if (adapters_ != nullptr && i == admissions.size()) return any;
    if (adapters_ != nullptr && admissions[i] == Admission::kWaits) {
      ++i, ++next;  // others may start before it
      continue;
    }
    Sequence& sequence = *next;
    try {
      if (!start(sequence)) {
        if (!running_.empty() || kept_.empty()) return false;
        kept_.clear();  // no other pages will be freed: what would have been shared is recomputed
        continue;
      }
      const std::chrono::duration<double> waited =
          std::chrono::steady_clock::now() - sequence.request.submitted_at;
      sequence.answer.completion.wait_seconds = waited.count();
      running_.splice(running_.end(), waiting_, next++);
    } catch (const std::bad_alloc&) {
      ++next;
      fail(sequence, {RequestError::kOutOfMemory, "out of memory: the row could not be started"});
    } catch (const std::exception& failure) {
      ++next;
      fail(sequence, failure_of(failure));
    }
    any = true;
    ++i;
  }
  return false;
}

/// The sequence whose first pages it shares; nullptr: none, also where that one has failed.
const Sequence* RowQueue::find_leader(const Sequence& sequence) const {
  const RowCache& cache = sequence.cache;
  if (cache.leader < 0) return nullptr;
  for (const Sequences* list : {&running_, &ended_, &kept_}) {
    const auto place = std::ranges::find(*list, cache.leader, &Sequence::id);
    if (place == list->end()) continue;
    const bool has_all =
        !place->cache.pages.is_empty() && place->cache.num_cached >= cache.num_shared;
    return list == &running_ || has_all ? &*place : nullptr;
  }
  return nullptr;
}

/// Positions that the sequence has computed and waiting ones will share.
int64_t RowQueue::num_awaited(const Sequence& sequence) const {
  int64_t most = 0;
  for (const Sequence& other : waiting_) {
    const bool waits =
        other.cache.leader == sequence.id && sequence.cache.num_cached >= other.cache.num_shared;
    if (waits) most = std::max(most, other.cache.num_shared);
  }
  return most;
}

void RowQueue::forget_ended() noexcept {
  kept_.splice(kept_.end(), ended_);
  free_kept();
}

void RowQueue::free_kept() noexcept {
  std::erase_if(kept_, [this](const Sequence& sequence) { return num_awaited(sequence) == 0; });
}

Sequence* RowQueue::find(RequestId id) {
  for (Sequences* list : {&waiting_, &running_}) {
    const auto place = std::ranges::find(*list, id, &Sequence::id);
    if (place != list->end()) return &*place;
  }
  return nullptr;
}

}  // namespace heddle
