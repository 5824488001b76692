#include "engine/drafts/suffix_automaton.h"

#include <algorithm>
#include <cassert>

namespace heddle {
namespace {

constexpr size_t kMinStates = 128;
constexpr size_t kMaxUnits = size_t{1} << 28;  // whose states have numbers of 31 bits

/// States, transitions and slots grow together: text has up to half as many transitions besides the
/// first ones of states as it has states, and a third of the slots stays free.
constexpr size_t transitions_for(size_t num_states) { return num_states / 2; }
constexpr size_t slots_for(size_t num_states) { return num_states * 3 / 4; }

}  // namespace

size_t SuffixAutomaton::slot_of(int32_t state, int32_t token) const {
  const uint64_t key = uint64_t{static_cast<uint32_t>(state)} << 32 | static_cast<uint32_t>(token);
  // Fibonacci hashing; the upper half times the number of slots, without its lower 32 bits, is
  // below that number.
  const uint64_t mixed = (key ^ key >> 29) * 0x9E3779B97F4A7C15U;
  size_t slot = (mixed >> 32) * slots_.size() >> 32;
  while (slots_[slot] != kNone) {
    const Transition& there = transitions_[static_cast<size_t>(slots_[slot])];
    if (there.from == state && there.token == token) break;
    if (++slot == slots_.size()) slot = 0;
  }
  return slot;
}

/// 0, the root, where there is none: no transition leads there.
int32_t SuffixAutomaton::target_of(int32_t state, int32_t token) const {
  const State& from = at(state);
  if (from.target == 0) return 0;
  if (from.token == token) return from.target;
  if (from.others == kNone) return 0;
  const int32_t transition = slots_[slot_of(state, token)];
  return transition == kNone ? 0 : transitions_[static_cast<size_t>(transition)].target;
}

void SuffixAutomaton::add_transition(int32_t from, int32_t token, int32_t target) noexcept {
  State& state = at(from);
  if (state.target == 0) {
    state.token = token;
    state.target = target;
    return;
  }
  assert(transitions_.size() < transitions_.capacity());
  const auto transition = static_cast<int32_t>(transitions_.size());
  slots_[slot_of(from, token)] = transition;
  transitions_.push_back({from, token, target, state.others});
  state.others = transition;
}

void SuffixAutomaton::set_target(int32_t from, int32_t token, int32_t target) noexcept {
  State& state = at(from);
  if (state.token == token) {
    state.target = target;
  } else {
    transitions_[static_cast<size_t>(slots_[slot_of(from, token)])].target = target;
  }
}

int32_t SuffixAutomaton::add_state(int32_t length) noexcept {
  assert(states_.size() < states_.capacity());
  states_.push_back({.length = length});
  return static_cast<int32_t>(states_.size()) - 1;
}

/// Takes the substrings of `state` out that are one of `before` and the token: they are about to
/// end at a place where its longer ones do not.
int32_t SuffixAutomaton::clone(int32_t before, int32_t token, int32_t state) noexcept {
  const int32_t copy = add_state(at(before).length + 1);
  const State& from = at(state);
  at(copy).link = from.link;
  at(copy).count = from.count;
  at(copy).best_token = from.best_token;
  at(copy).best_count = from.best_count;
  if (from.target != 0) add_transition(copy, from.token, from.target);
  for (int32_t i = from.others; i != kNone;) {
    const Transition each = transitions_[static_cast<size_t>(i)];
    add_transition(copy, each.token, each.target);
    i = each.next;
  }
  at(state).link = copy;
  for (; before != kNone && target_of(before, token) == state; before = at(before).link) {
    set_target(before, token, copy);
  }
  return copy;
}

/// How many transitions `extend` adds at most. It is few over all, but not of each token.
size_t SuffixAutomaton::num_added_by(int32_t token) const {
  size_t count = 0;
  int32_t before = last_;
  for (; before != kNone && target_of(before, token) == 0; before = at(before).link) ++count;
  if (before == kNone) return count;
  const State& target = at(target_of(before, token));
  if (target.length == at(before).length + 1) return count;
  for (int32_t i = target.others; i != kNone; i = transitions_[static_cast<size_t>(i)].next) {
    ++count;  // of the clone, besides the first one
  }
  return count;
}

/// The state of the whole text with the token.
int32_t SuffixAutomaton::extend(int32_t token) noexcept {
  const auto target_from = [&](int32_t before) {
    const int32_t target = target_of(before, token);
    return at(target).length == at(before).length + 1 ? target : clone(before, token, target);
  };
  int32_t before = last_;
  if (target_of(before, token) != 0) return target_from(before);  // another text has had it
  const int32_t added = add_state(at(before).length + 1);
  while (before != kNone && target_of(before, token) == 0) {
    add_transition(before, token, added);
    before = at(before).link;
  }
  const int32_t link = before == kNone ? 0 : target_from(before);
  at(added).link = link;
  return added;
}

/// Walks the suffixes before the token and those with it, state by state, at the same time.
void SuffixAutomaton::count_after(Match before, int32_t token) noexcept {
  int32_t state = before.state;
  for (int32_t with = target_of(state, token); with != 0; with = at(with).link) {
    const int32_t count = ++at(with).count;
    const int32_t shorter = at(at(with).link).length;
    for (; state != kNone && at(state).length + 1 > shorter; state = at(state).link) {
      State& counted = at(state);
      if (count < counted.best_count) continue;
      counted.best_token = token;
      counted.best_count = count;
    }
  }
}

/// Finds the state of the match: it may have become a clone of the one that it was.
void SuffixAutomaton::settle(Match& match) const {
  while (match.state != 0 && match.length <= at(at(match.state).link).length) {
    match.state = at(match.state).link;
  }
}

bool SuffixAutomaton::append(int32_t token) {
  if (states_.empty() && !reserve(3, 1)) return false;
  if (!reserve(2, num_added_by(token))) return false;
  last_ = extend(token);
  settle(match_);
  count_after(match_, token);
  advance(match_, token);
  ++num_tokens_;
  return true;
}

void SuffixAutomaton::advance(Match& match, int32_t token) const {
  if (states_.empty()) {
    match = {};
    return;
  }
  settle(match);
  int32_t target = target_of(match.state, token);
  while (target == 0 && match.state != 0) {
    match.state = at(match.state).link;
    match.length = at(match.state).length;
    target = target_of(match.state, token);
  }
  if (target == 0) return;  // the empty match
  match.state = target;
  match.length = std::min(match.length + 1, max_match_);
  settle(match);
}

SuffixAutomaton::Next SuffixAutomaton::next(Match& match) const {
  if (states_.empty() || match.length == 0) return {};
  settle(match);
  const State& state = at(match.state);
  return {state.best_token, state.best_count, state.count};
}

/// Memory for so many more; false: max_bytes are too few.
bool SuffixAutomaton::reserve(size_t num_new_states, size_t num_new_transitions) {
  const size_t min_states = states_.size() + num_new_states;
  const size_t min_transitions = transitions_.size() + num_new_transitions;
  const auto is_enough = [&](size_t num_states) {
    return num_states >= min_states && transitions_for(num_states) >= min_transitions;
  };
  size_t num_states = states_.capacity();
  if (is_enough(num_states)) return true;
  constexpr size_t kStatesOfUnit = 4;
  constexpr size_t kUnitBytes = kStatesOfUnit * sizeof(State) +
                                transitions_for(kStatesOfUnit) * sizeof(Transition) +
                                slots_for(kStatesOfUnit) * sizeof(int32_t);
  const size_t max_states = std::min(max_bytes_ / kUnitBytes, kMaxUnits) * kStatesOfUnit;
  if (!is_enough(max_states)) return false;
  while (!is_enough(num_states)) {
    num_states = std::min(std::max(2 * num_states, kMinStates), max_states);
  }
  grow(num_states);
  return true;
}

void SuffixAutomaton::grow(size_t num_states) {
  std::vector<int32_t> slots(slots_for(num_states), kNone);
  transitions_.reserve(transitions_for(num_states));
  states_.reserve(num_states);  // the last one: its capacity says that of the others
  slots_.swap(slots);
  for (size_t i = 0; i < transitions_.size(); ++i) {
    slots_[slot_of(transitions_[i].from, transitions_[i].token)] = static_cast<int32_t>(i);
  }
  if (states_.empty()) states_.emplace_back();
}

void SuffixAutomaton::clear() noexcept {
  if (!states_.empty()) states_.assign(1, {});
  transitions_.clear();
  std::ranges::fill(slots_, kNone);
  begin_text();
  num_tokens_ = 0;
}

void SuffixAutomaton::release() noexcept {
  states_ = std::vector<State>();  // = {} would keep its memory
  transitions_ = std::vector<Transition>();
  slots_ = std::vector<int32_t>();
  clear();
}

size_t SuffixAutomaton::num_bytes() const {
  return states_.capacity() * sizeof(State) + transitions_.capacity() * sizeof(Transition) +
         slots_.capacity() * sizeof(int32_t);
}

}  // namespace heddle
