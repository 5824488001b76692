#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/drafts/suffix_automaton.h"

namespace heddle {

struct SuffixMemoryOptions {
  size_t max_bytes = size_t{4} << 20;  // of all that it allocates; about 70 a token
  int64_t max_tokens = 65536;          // that it remembers; half of it at least, where bytes allow
  int min_match = 2;                   // tokens of the text that must have come before
  int max_match = 64;                  // and that are looked at
  double min_share = 0.5;              // of the occurrences, that go on with the token
};

/// The memory of the recent answers of one adapter, so that an adapter that writes SQL drafts SQL.
///
///   memory.add(answer);                                   // of a row that has ended
///   SuffixMemory::Cursor cursor = memory.begin();         // of a row that runs
///   memory.append(cursor, prompt);                        // once
///   memory.append(cursor, token);                         // and for each of its tokens
///   const size_t count = memory.propose(cursor, drafts);  // into drafts [as many as wanted]
///
/// Drafts go on from the longest suffix of the row's tokens that is in the memory, of min_match to
/// max_match tokens: each is the token that came most often after the suffix with the drafts before
/// it, of several that which came last. They end where less than min_share of the occurrences go
/// on alike, or at the end of answers. An answer should have its end token, which then is a draft,
/// too.
///
/// Answers go into an automaton; when that has half of the bytes or tokens, it takes the place of
/// an older one, which is forgotten, and an empty one begins. Suffixes are looked for in both. To
/// rebuild one automaton from the recent half of its answers would take some 10 ms at once, between
/// two steps, and the answers themselves; this takes neither, and allocates no more once both are
/// full. An answer that repeats what is known takes no memory.
class SuffixMemory {
 public:
  /// Cursors of ages before `first_age` are taken for those of other memories.
  explicit SuffixMemory(const SuffixMemoryOptions& options = {}, uint64_t first_age = 0);

  /// Adds an answer, of which the last max_tokens count. Where std::bad_alloc is thrown, the memory
  /// is empty after it.
  void add(std::span<const int32_t> answer);
  void clear() noexcept;

  /// Where a row is in the memory. It is a value, which outlives the memory and what that forgets:
  /// then it starts anew with the next tokens.
  struct Cursor {
    uint64_t age = 0;
    SuffixAutomaton::Match recent{}, older{};
  };
  [[nodiscard]] Cursor begin() const { return {.age = age_}; }
  /// The row goes on with a token, in constant time over all.
  void append(Cursor& cursor, int32_t token) const;
  /// Or with several, of which the last max_match are read.
  void append(Cursor& cursor, std::span<const int32_t> tokens) const;
  /// Writes up to drafts.size() drafts; returns how many.
  size_t propose(const Cursor& cursor, std::span<int32_t> drafts) const;
  /// As if a cursor began with the context.
  size_t propose(std::span<const int32_t> context, std::span<int32_t> drafts) const;

  /// Of the row's last tokens, those that the memory has: the longer, the surer the drafts.
  [[nodiscard]] int num_matched(const Cursor& cursor) const;
  [[nodiscard]] int64_t num_tokens() const;
  [[nodiscard]] size_t num_bytes() const;  // that are allocated

 private:
  [[nodiscard]] Cursor current(const Cursor& cursor) const;
  void begin_recent() noexcept;
  size_t propose_from(const SuffixAutomaton& automaton, SuffixAutomaton::Match match,
                      std::span<int32_t> drafts) const;

  SuffixMemoryOptions options_;
  SuffixAutomaton recent_, older_;
  uint64_t age_;  // one more with each `recent_` that begins
};

}  // namespace heddle
