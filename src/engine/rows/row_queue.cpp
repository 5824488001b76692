#include "engine/rows/row_queue.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <limits>
#include <new>
#include <utility>

#include "engine/rows/scheduler.h"

namespace heddle {
namespace {

/// Bytes of an error that every request has room for.
constexpr size_t kErrorBytes = 80;

/// Of a request whose adapters were switched.
constexpr RowFailure kNoCopy{
    RequestError::kOutOfMemory,
    "the request was parked after its adapter had been switched, and there was no memory for a "
    "copy of its keys and values; a larger kv_memory (--kv-memory) or, on a GPU, kv_host_memory "
    "(--kv-host-memory) has room for it"};

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
  if (sequence.mask != nullptr)
    sequence.mask->begin(sequence.drafts == nullptr ? 0 : kMaxRowDrafts);
  if (!request.scores_prompt) return;
  const auto prompt = static_cast<size_t>(request.prompt_tokens);
  to.prompt_logprobs.assign(prompt, std::numeric_limits<float>::quiet_NaN());
  to.prompt_top_token_ids.assign(prompt * k, -1);
  to.prompt_top_logprobs.assign(prompt * k, std::numeric_limits<float>::quiet_NaN());
}

/// Where a sequence comes among those that run: those of the lowest priority first, and of these
/// the most senior.
Sequences::iterator place_in(Sequences& running, const Sequence& sequence) noexcept {
  const auto rank = [](const Sequence& each) {
    return std::pair(each.request.priority, each.seniority);
  };
  auto place = running.end();
  while (place != running.begin() && rank(*std::prev(place)) > rank(sequence)) --place;
  return place;
}

PrefixKey prefix_key(const Sequence& sequence) {
  const RowAdapters& adapters = sequence.adapters;
  return {.tokens = sequence.tokens,
          .salt = sequence.request.salt,
          .adapters = adapters.content,
          .acts_from = adapters.keys_from};
}

/// Whether the sequence takes pages from the prefix cache: not where it needs logits of all tokens,
/// pools their states, or has pages of several adapters.
bool takes_prefix(const Sequence& sequence) {
  const RowValues* const values = sequence.values.get();
  const bool needs_all =
      sequence.request.scores_prompt || (values != nullptr && values->needs_whole_prompt());
  return !needs_all && !sequence.has_switched();
}

/// How many, at most: its last token is computed in any case, since it draws the next one.
/// Where the shelf has that one, it is computed already.
int64_t max_shared_pages(const Sequence& sequence, int64_t page_size) {
  if (!takes_prefix(sequence)) return 0;
  const RowCache& cache = sequence.cache;
  return (cache.prefill_length - (cache.saved.exists() ? 0 : 1)) / page_size;
}

}  // namespace

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
  if (sequence.cache.was_parked && sequence.cache.pages.is_empty()) --num_parked_;
  drop_saved(sequence);
  free_pages(sequence);
  sequence.tokens = {};
  sequence.adapters = {};
  sequence.adjustment = nullptr;
  sequence.mask = nullptr;
  sequence.values = nullptr;
  const auto place = std::ranges::find(running_, &sequence, [](const Sequence& s) { return &s; });
  if (place != running_.end()) return ended_.splice(ended_.end(), running_, place);
  waiting_.move_to(ended_, ended_.end(), WaitingRows::place_of(sequence));
}

void RowQueue::fail(Sequence& sequence, const RowFailure& failure) noexcept {
  set_error(sequence.answer.completion, failure);
  end(sequence, FinishReason::kError);
}

void RowQueue::fail_all(const RowFailure& failure) noexcept {
  while (!running_.empty()) fail(running_.front(), failure);
  const auto any = [](const Sequence& /*waiting*/) { return true; };
  while (Sequence* const waiting = waiting_.find(any)) fail(*waiting, failure);
}

void RowQueue::free_pages(Sequence& sequence) noexcept {
  RowCache& cache = sequence.cache;
  if (prefixes_ != nullptr) {
    prefixes_->unclaim(cache.place);
    add_tail(sequence);
  }
  cache.pages = {};
  cache.num_cached = 0;
  cache.awaits_page = false;
}

/// Gives the sequence its pages, the first of them from the prefix cache, and adapters; returns
/// whether they fit.
bool RowQueue::start(Sequence& sequence) {
  RowCache& cache = sequence.cache;
  RowAdapters& adapters = sequence.adapters;
  const bool is_first = !cache.was_parked;
  cache.prefill_length =
      rules_.has_two_paths ? sequence.request.prompt_tokens : std::ssize(sequence.tokens);
  if (cache.saved.exists()) cache.prefill_length = cache.saved.first_page * rules_.page_size;
  found_.clear();
  if (prefixes_ != nullptr) {
    cache.place = sequence.has_switched() ? PrefixCache::nowhere() : prefixes_->begin();
    if (adapters_ != nullptr) adapters.content = adapters_->content(sequence);
    const PrefixKey key = prefix_key(sequence);
    while (cache.place.num_pages < max_shared_pages(sequence, rules_.page_size)) {
      const auto [found, page] = prefixes_->find(cache.place, key);
      if (found != PrefixCache::Found::kPage) break;
      found_.push_back(page);
    }
  }
  std::optional<ReservedPages> pages = reserve(sequence);
  if (!pages) return false;
  if (adapters_ != nullptr) adapters_->take(sequence);
  if (is_first) {
    reserve_answer(sequence);
  } else {
    --num_parked_;
  }
  cache.pages = std::move(*pages);
  cache.num_cached = cache.place.num_pages * rules_.page_size;
  cache.has_run = false;
  if (is_first) {
    sequence.answer.completion.cached_tokens = cache.num_cached;
    sequence.seniority = rules_.has_tenants ? num_started_++ : sequence.id;
    waiting_.charge(sequence, sequence.request.prompt_tokens - cache.num_cached);
  }
  if (prefixes_ != nullptr && takes_prefix(sequence)) {
    counts_.prefix_tokens += cache.prefill_length;
    counts_.cached_tokens += cache.num_cached;
  }
  return true;
}

/// The pages that a sequence needs to start. Without reserves_longest those that run can then grow
/// by a page each.
std::optional<ReservedPages> RowQueue::reserve(const Sequence& sequence) {
  const int64_t longest = pages_for_row(sequence.request.max_tokens, rules_.page_size);
  if (rules_.reserves_longest) return pages_.reserve(longest, found_);
  const int64_t first = pages_for(std::ssize(sequence.tokens), rules_.page_size) + kSparePages;
  std::optional<ReservedPages> pages = pages_.reserve(std::min(first, longest), found_, longest);
  const auto may_grow = [&](const Sequence& each) {
    return each.cache.pages.num_reserved() <
           pages_for_row(each.request.max_tokens, rules_.page_size);
  };
  if (pages && pages_.num_free() < std::ranges::count_if(running_, may_grow)) pages.reset();
  return pages;
}

void RowQueue::prepare_step() noexcept {
  for (auto next = running_.begin(); next != running_.end();) {
    if (reserve_next(*next)) {
      ++next;
      continue;
    }
    const auto parked = next_to_park();
    if (parked == next) ++next;
    park(parked);
  }
  if (prefixes_ != nullptr) prefixes_->poll();
  for (auto next = running_.begin(); next != running_.end();) {
    Sequence& sequence = *next++;  // which may end
    if (prefixes_ != nullptr) take_prefix(sequence);
    restore(sequence);
    switch_due(sequence);
  }
}

bool RowQueue::wait_for_page() noexcept {
  for (const Sequence& sequence : running_) {
    if (!sequence.cache.saved.is_restoring || sequence.is_paused) continue;
    shelf_->wait_until_restored(sequence.cache.saved.id);
    return true;
  }
  return prefixes_ != nullptr && prefixes_->wait();
}

/// Pages for the next tokens of the sequence; false: they are not free.
bool RowQueue::reserve_next(Sequence& sequence) noexcept {
  RowCache& cache = sequence.cache;
  const int64_t longest = pages_for_row(sequence.request.max_tokens, rules_.page_size);
  const int64_t needed = pages_for(sequence.num_tokens(), rules_.page_size);
  return sequence.is_paused || cache.pages.reserve_to(std::min(needed, longest));
}

/// One of those that run. The first that is not paused is never the one: alone it has room, as
/// Engine::submit has checked.
Sequences::iterator RowQueue::next_to_park() noexcept {
  auto paused = running_.end();
  for (auto place = running_.begin(); place != running_.end(); ++place) {
    if (place->is_paused) paused = place;
  }
  return paused == running_.end() ? std::prev(running_.end()) : paused;
}

/// What the sequence has drawn stays, also what a step in flight draws. The prefix cache keeps its
/// pages until others need them.
void RowQueue::park(Sequences::iterator place) noexcept {
  RowCache& cache = place->cache;
  save(*place);
  if (place->has_switched() && !cache.saved.exists()) return fail(*place, kNoCopy);
  cache.num_before_parking = std::max(cache.num_before_parking, cache.num_cached);
  free_pages(*place);
  place->adapters.weights.clear();
  place->adapters.slot = kNoAdapter;
  if (place->values != nullptr) place->values->place = {};
  cache.was_parked = true;
  ++counts_.parkings;
  ++num_parked_;
  waiting_.add(running_, place);
}

/// What the prefix cache does not have of a sequence that has drawn tokens goes to the shelf, where
/// there is room: with it the sequence goes on without decoding them again. So does all of one
/// whose adapters were switched, which cannot be computed again. What it has there since it was
/// parked before stays.
void RowQueue::save(Sequence& sequence) noexcept {
  RowCache& cache = sequence.cache;
  if (cache.saved.is_restoring) shelf_->break_off(cache.saved.id);
  cache.saved.is_restoring = false;
  const bool has_drawn = cache.num_cached > sequence.request.prompt_tokens;
  const bool is_needed = sequence.has_switched() || (rules_.has_two_paths && has_drawn);
  if (shelf_ == nullptr || !is_needed || cache.saved.exists()) return;
  const bool has_entries = prefixes_ != nullptr && prefixes_->is_valid(cache.place);
  const int64_t first = has_entries ? cache.place.num_pages : 0;
  const int64_t count = pages_for(cache.num_cached, rules_.page_size) - first;
  const auto pages =
      cache.pages.ids().subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  cache.saved = {.id = shelf_->save(pages), .first_page = first, .num_tokens = cache.num_cached};
}

/// Brings back what the shelf has, once the sequence has all pages before that.
void RowQueue::restore(Sequence& sequence) noexcept {
  RowCache& cache = sequence.cache;
  SavedRow& saved = cache.saved;
  if (!saved.exists() || sequence.is_paused) return;
  if (cache.num_cached < saved.first_page * rules_.page_size) return;
  if (!saved.is_restoring) {
    cache.pages.grow_to(pages_for(saved.num_tokens, rules_.page_size));
    const auto to = cache.pages.ids().subspan(static_cast<size_t>(saved.first_page));
    saved.is_restoring = shelf_->begin_restore(saved.id, to);
  }
  if (!saved.is_restoring) {
    if (sequence.has_switched()) return fail(sequence, kNoCopy);
    cache.pages.shrink_to(saved.first_page);
    cache.prefill_length = sequence.request.prompt_tokens;
    return drop_saved(sequence);
  }
  cache.awaits_page = !shelf_->is_restored(saved.id);
  if (cache.awaits_page) return;
  counts_.restored_tokens += saved.num_tokens - cache.num_cached;
  cache.num_cached = saved.num_tokens;
  cache.prefill_length = sequence.request.prompt_tokens;
  drop_saved(sequence);
}

void RowQueue::drop_saved(Sequence& sequence) noexcept {
  if (sequence.cache.saved.exists()) shelf_->drop(sequence.cache.saved.id);
  sequence.cache.saved = {};
}

/// Gives a sequence that prefills the next pages that others have computed by now. Where another
/// one is computing the next, or it comes from the store, it waits for that; else it computes the
/// rest itself, and others wait.
void RowQueue::take_prefix(Sequence& sequence) noexcept {
  RowCache& cache = sequence.cache;
  cache.awaits_page = false;
  const bool is_at_page = cache.num_cached == cache.place.num_pages * rules_.page_size;
  const bool has_claimed = cache.place.claim >= 0;
  if (sequence.is_paused || !is_at_page || has_claimed || sequence.decodes()) return;
  PrefixKey key = prefix_key(sequence);
  const int64_t max_pages = max_shared_pages(sequence, rules_.page_size);
  while (cache.place.num_pages < max_pages) {
    const auto [found, page] = prefixes_->find(cache.place, key);
    const bool is_nothing = found == PrefixCache::Found::kNothing;
    const bool is_being_read = is_nothing && prefixes_->begin_read(cache.place, key, max_pages);
    if (found == PrefixCache::Found::kClaim) prefixes_->read_on(cache.place, key, max_pages);
    cache.awaits_page = found == PrefixCache::Found::kClaim || is_being_read;
    if (cache.awaits_page) return;
    if (is_nothing) break;
    cache.pages.share(page);
    count_cached(sequence, rules_.page_size);
  }
  take_part(sequence, key);
  key.tokens = key.tokens.first(static_cast<size_t>(cache.prefill_length));
  prefixes_->claim(cache.place, key);
}

/// Copies what is known of the next page, up to the token that is computed in any case. The page
/// that is copied may be evicted for the copy: then it is that page, with all that it holds.
void RowQueue::take_part(Sequence& sequence, const PrefixKey& key) noexcept {
  RowCache& cache = sequence.cache;
  const int64_t left = cache.prefill_length - 1 - cache.num_cached;
  if (!takes_prefix(sequence) || left <= 0) return;
  const auto [page, num_tokens] = prefixes_->find_part(cache.place, key, left);
  if (num_tokens == 0) return;
  cache.pages.grow_to(cache.place.num_pages + 1);
  if (!prefixes_->copy_page(page, cache.pages.ids().back())) return;
  count_cached(sequence, num_tokens);
}

/// So many tokens of its prompt need not be computed, after it has started.
void RowQueue::count_cached(Sequence& sequence, int64_t num_tokens) noexcept {
  RowCache& cache = sequence.cache;
  cache.num_cached += num_tokens;
  counts_.cached_tokens += num_tokens;
  if (cache.was_parked) return;
  sequence.answer.completion.cached_tokens = cache.num_cached;
  waiting_.charge(sequence, -num_tokens);
}

/// Of a sequence that gives up its pages: the prefix cache gets the last one, if it is not whole.
void RowQueue::add_tail(Sequence& sequence) noexcept {
  const RowCache& cache = sequence.cache;
  const int64_t first = cache.place.num_pages * rules_.page_size;
  const int64_t end =
      rules_.has_two_paths ? std::min(cache.num_cached, cache.prefill_length) : cache.num_cached;
  const bool is_part = end > first && end < first + rules_.page_size;
  const bool has_failed = sequence.answer.completion.finish_reason == FinishReason::kError;
  if (!is_part || (sequence.answer.has_ended && has_failed)) return;
  PrefixKey key = prefix_key(sequence);
  key.tokens = key.tokens.first(static_cast<size_t>(end));
  prefixes_->add_tail(cache.place, key,
                      cache.pages.ids()[static_cast<size_t>(cache.place.num_pages)]);
}

void RowQueue::add_computed(Sequence& sequence, int64_t end) noexcept {
  RowCache& cache = sequence.cache;
  if (prefixes_ == nullptr || end > cache.num_cached) return;  // it was parked since
  if (rules_.has_two_paths) end = std::min(end, cache.prefill_length);
  const PrefixKey key = prefix_key(sequence);
  while (prefixes_->is_valid(cache.place) &&
         (cache.place.num_pages + 1) * rules_.page_size <= end) {
    const int64_t i = cache.place.num_pages;
    const PageId own = cache.pages.ids()[static_cast<size_t>(i)];
    const PageId page = prefixes_->add(cache.place, key, own);
    if (page != own) cache.pages.replace(i, page);
  }
}

/// Pages past `end` stay with the row, which writes them again.
void RowQueue::accept(Sequence& sequence, int64_t end) noexcept {
  sequence.cache.num_cached = end;
  add_computed(sequence, end);
}

void RowQueue::set_paused(Sequence& sequence, bool is_paused) noexcept {
  if (sequence.cache.pages.is_empty()) {
    waiting_.set_paused(sequence, is_paused);
  } else {
    sequence.is_paused = is_paused;
  }
  sequence.cache.awaits_page = false;
  if (is_paused && prefixes_ != nullptr) prefixes_->unclaim(sequence.cache.place);
}

/// Of the requests that are next.
std::span<const Admission> RowQueue::schedule(std::span<const WaitingRows::Place> order) noexcept {
  scheduled_.clear();
  for (const WaitingRows::Place place : order) scheduled_.push_back(&*place);
  return adapters_->schedule(scheduled_);
}

void RowQueue::admit() noexcept {
  while (start_scheduled()) {  // the next ones, where all of a schedule were looked at
  }
}

/// Starts requests of one schedule. Returns whether all of it were looked at and some have left the
/// queue, so that the next schedule has others.
bool RowQueue::start_scheduled() noexcept {
  std::span<const WaitingRows::Place> order = waiting_.order();
  std::span<const Admission> admissions;
  if (adapters_ != nullptr && !order.empty()) {
    admissions = schedule(order);
    order = order.first(admissions.size());
  }
  const bool is_whole = std::ssize(order) == waiting_.size();
  bool any = false;
  for (size_t i = 0; i < order.size(); ++i) {
    if (std::ssize(running_) >= rules_.max_batch) return false;
    Sequence& sequence = *order[i];
    const bool waits = adapters_ != nullptr && admissions[i] == Admission::kWaits;
    const bool is_compiling = sequence.mask != nullptr && !sequence.mask->is_ready();
    if (waits || is_compiling) continue;  // others may start before it
    try {
      if (!start(sequence)) return false;
      const std::chrono::duration<double> waited =
          std::chrono::steady_clock::now() - sequence.request.submitted_at;
      if (!sequence.cache.was_parked) sequence.answer.completion.wait_seconds = waited.count();
      waiting_.move_to(running_, place_in(running_, sequence), order[i]);
    } catch (const std::bad_alloc&) {
      fail(sequence, {RequestError::kOutOfMemory, "out of memory: the row could not be started"});
    } catch (const std::exception& failure) {
      fail(sequence, failure_of(failure));
    }
    any = true;
  }
  return any && !is_whole;
}

Sequence* RowQueue::find(RequestId id) {
  const auto place = std::ranges::find(running_, id, &Sequence::id);
  if (place != running_.end()) return &*place;
  return waiting_.find([id](const Sequence& waiting) { return waiting.id == id; });
}

}  // namespace heddle
