// Requests that go on with other adapters: RowQueue::switch_adapter.
#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "engine/rows/row_queue.h"

namespace heddle {

void RowQueue::switch_adapter(const std::shared_ptr<KnownAdapter>& from,
                              const std::shared_ptr<KnownAdapter>& to) noexcept {
  const auto has_it = [&from](const Sequence& sequence) {
    if (sequence.values != nullptr) return false;  // they are of one adapter and its score head
    const RowAdapters& adapters = sequence.adapters;
    const auto& latest = adapters.next.empty() ? adapters.holds : adapters.next;
    return std::ranges::find(latest, from) != latest.end();
  };
  for (auto next = running_.begin(); next != running_.end();) {
    Sequence& sequence = *next++;  // which may end
    if (has_it(sequence)) set_next_adapter(sequence, from, to);
  }
  while (Sequence* const waiting = waiting_.find(has_it)) set_next_adapter(*waiting, from, to);
}

void RowQueue::set_next_adapter(Sequence& sequence, const std::shared_ptr<KnownAdapter>& from,
                                const std::shared_ptr<KnownAdapter>& to) noexcept {
  RowAdapters& adapters = sequence.adapters;
  try {
    if (adapters.next.empty()) adapters.next = adapters.holds;
    std::ranges::replace(adapters.next, from, to);
  } catch (const std::bad_alloc& failure) {
    return fail(sequence, failure_of(failure));
  }
  switch_due(sequence);
}

/// Where the sequence has all keys and values that it had when its adapters were to change.
void RowQueue::switch_due(Sequence& sequence) noexcept {
  if (sequence.cache.num_cached < sequence.num_before_switch()) return;
  try {
    begin_next_adapters(sequence);
  } catch (const std::exception& failure) {
    fail(sequence, failure_of(failure));
  }
}

void RowQueue::begin_next_adapters(Sequence& sequence) {
  RowCache& cache = sequence.cache;
  RowAdapters& adapters = sequence.adapters;
  adapters.holds = std::exchange(adapters.next, {});
  if (cache.num_cached > 0) {
    Completion& completion = sequence.answer.completion;
    std::vector<AdapterSwitch>& switches = completion.adapter_switches;
    if (switches.empty() || switches.back().position < cache.num_cached) {
      const int64_t first_drawn = cache.num_cached + 1 - sequence.request.prompt_tokens;
      switches.push_back(
          {.position = cache.num_cached, .token = std::max<int64_t>(first_drawn, 0)});
      if (switches.size() > 1) completion.earlier_digests += ' ';
      completion.earlier_digests += completion.adapter_digest;
    }
  }
  const bool is_running = !adapters.weights.empty();
  if (!is_running) return;
  adapters_->take(sequence);
  if (prefixes_ == nullptr) return;
  prefixes_->unclaim(cache.place);
  if (sequence.has_switched()) {
    cache.place = PrefixCache::nowhere();
  } else {
    adapters.content = adapters_->content(sequence);
  }
}

}  // namespace heddle
