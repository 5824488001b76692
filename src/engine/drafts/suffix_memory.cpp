#include "engine/drafts/suffix_memory.h"

#include <algorithm>
#include <new>
#include <utility>

#include "heddle/core/error.h"

namespace heddle {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 31;  // automata count in 31 bits

}  // namespace

SuffixMemory::SuffixMemory(const SuffixMemoryOptions& options, uint64_t first_age)
    : options_(options),
      recent_(options.max_match, options.max_bytes / 2),
      older_(options.max_match, options.max_bytes / 2),
      age_(first_age + 1) {
  HEDDLE_CHECK(options.min_match >= 1 && options.max_match >= options.min_match, "min_match is ",
               options.min_match, " and max_match ", options.max_match,
               ", expected 1 <= min_match <= max_match");
}

void SuffixMemory::begin_recent() noexcept {
  std::swap(recent_, older_);
  recent_.clear();
  ++age_;
}

void SuffixMemory::add(std::span<const int32_t> answer) {
  const int64_t half = std::min(options_.max_tokens, kMaxTokens) / 2;
  if (half < 1) return;
  answer = answer.last(std::min(answer.size(), static_cast<size_t>(2 * half)));
  try {
    recent_.begin_text();
    for (const int32_t token : answer) {
      if (recent_.num_tokens() < half && recent_.append(token)) continue;
      if (recent_.num_tokens() == 0) return;  // max_bytes are too few for anything
      begin_recent();
      if (!recent_.append(token)) return;
    }
  } catch (const std::bad_alloc&) {
    clear();
    throw;
  }
}

void SuffixMemory::clear() noexcept {
  recent_.release();
  older_.release();
  age_ += 2;  // no cursor goes on in `older_`
}

/// The cursor in the automata that there are now.
SuffixMemory::Cursor SuffixMemory::current(const Cursor& cursor) const {
  if (cursor.age == age_) return cursor;
  Cursor now = begin();
  if (cursor.age + 1 == age_) now.older = cursor.recent;
  return now;
}

void SuffixMemory::append(Cursor& cursor, int32_t token) const {
  cursor = current(cursor);
  recent_.advance(cursor.recent, token);
  older_.advance(cursor.older, token);
}

void SuffixMemory::append(Cursor& cursor, std::span<const int32_t> tokens) const {
  const auto max_match = static_cast<size_t>(options_.max_match);
  if (tokens.size() > max_match) {
    tokens = tokens.last(max_match);
    cursor = begin();
  }
  for (const int32_t token : tokens) append(cursor, token);
}

int SuffixMemory::num_matched(const Cursor& cursor) const {
  const Cursor now = current(cursor);
  return std::max(now.recent.length, now.older.length);
}

size_t SuffixMemory::propose_from(const SuffixAutomaton& automaton, SuffixAutomaton::Match match,
                                  std::span<int32_t> drafts) const {
  size_t count = 0;
  while (count < drafts.size() && match.length >= options_.min_match) {
    const SuffixAutomaton::Next next = automaton.next(match);
    if (next.count == 0 || next.count < options_.min_share * next.num_occurrences) break;
    drafts[count++] = next.token;
    automaton.advance(match, next.token);
  }
  return count;
}

size_t SuffixMemory::propose(const Cursor& cursor, std::span<int32_t> drafts) const {
  const Cursor now = current(cursor);
  const bool is_recent_first = now.recent.length >= now.older.length;
  for (const bool is_recent : {is_recent_first, !is_recent_first}) {
    const size_t count = is_recent ? propose_from(recent_, now.recent, drafts)
                                   : propose_from(older_, now.older, drafts);
    if (count > 0) return count;
  }
  return 0;
}

size_t SuffixMemory::propose(std::span<const int32_t> context, std::span<int32_t> drafts) const {
  Cursor cursor = begin();
  append(cursor, context);
  return propose(cursor, drafts);
}

int64_t SuffixMemory::num_tokens() const { return recent_.num_tokens() + older_.num_tokens(); }

size_t SuffixMemory::num_bytes() const { return recent_.num_bytes() + older_.num_bytes(); }

}  // namespace heddle
