#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace heddle {

/// All substrings of some texts of tokens, and how often each token comes after them: what a
/// SuffixMemory is made of.
///
///   automaton.begin_text();
///   for (int32_t token : answer) automaton.append(token);   // false: it is full
///   SuffixAutomaton::Match match;             // of a text that is not in it
///   automaton.advance(match, token);  // its longest suffix that is, up to max_match tokens
///   automaton.next(match);            // what most often comes after that suffix
///
/// Blumer et al., "The smallest automaton recognizing the subwords of a text": a state is a set of
/// substrings that end at the same places, the longer ones first; its link is the state of the
/// next shorter suffix. Up to two states a token, three transitions. How often a substring occurs
/// is kept for those of up to max_match + 1 tokens alone, which takes at most as many additions
/// a token, so one token repeated a million times costs no more than other texts.
class SuffixAutomaton {
 public:
  /// max_match >= 1. It allocates max_bytes at most, and while it grows half as much besides.
  SuffixAutomaton(int max_match, size_t max_bytes) : max_match_(max_match), max_bytes_(max_bytes) {}

  /// A suffix of some text that the automaton has: the first `length` tokens before its end. It
  /// stays one while texts are added, until `clear`.
  struct Match {
    int32_t state = 0;
    int length = 0;
  };
  /// What comes after a suffix.
  struct Next {
    int32_t token = 0;
    int32_t count = 0;            // how often it does; 0: nothing ever came after it
    int32_t num_occurrences = 0;  // of the suffix, also at the end of a text
  };

  /// The text goes on with the token.
  void advance(Match& match, int32_t token) const;
  /// The most frequent token, of several that which came last.
  [[nodiscard]] Next next(Match& match) const;

  /// The next tokens are those of another text.
  void begin_text() { last_ = 0, match_ = {}; }
  /// Another token of the text. False: max_bytes are too few for it. Then, and where
  /// std::bad_alloc is thrown, nothing has changed.
  [[nodiscard]] bool append(int32_t token);

  /// Forgets all texts, and keeps the memory or not.
  void clear() noexcept;
  void release() noexcept;
  [[nodiscard]] int64_t num_tokens() const { return num_tokens_; }
  [[nodiscard]] size_t num_bytes() const;

 private:
  static constexpr int32_t kNone = -1;
  struct State {
    int32_t length = 0;  // of its longest substring
    int32_t link = kNone;
    int32_t count = 0;  // how often its substrings occur, where the shortest is no longer than
                        // max_match + 1
    int32_t best_token = 0, best_count = 0;
    // Most states have one transition; its target is 0, the root, where there is none.
    int32_t token = 0, target = 0;
    int32_t others = kNone;  // the first of the other ones
  };
  struct Transition {
    int32_t from = 0, token = 0, target = 0;
    int32_t next = kNone;  // of the same state
  };

  [[nodiscard]] State& at(int32_t state) { return states_[static_cast<size_t>(state)]; }
  [[nodiscard]] const State& at(int32_t state) const { return states_[static_cast<size_t>(state)]; }
  [[nodiscard]] size_t slot_of(int32_t state, int32_t token) const;
  [[nodiscard]] int32_t target_of(int32_t state, int32_t token) const;
  void add_transition(int32_t from, int32_t token, int32_t target) noexcept;
  void set_target(int32_t from, int32_t token, int32_t target) noexcept;
  [[nodiscard]] size_t num_added_by(int32_t token) const;
  [[nodiscard]] bool reserve(size_t num_new_states, size_t num_new_transitions);
  void grow(size_t num_states);
  int32_t add_state(int32_t length) noexcept;
  int32_t clone(int32_t before, int32_t token, int32_t state) noexcept;
  [[nodiscard]] int32_t extend(int32_t token) noexcept;
  void count_after(Match before, int32_t token) noexcept;
  void settle(Match& match) const;

  int max_match_;
  size_t max_bytes_;
  std::vector<State> states_;  // [0] is the root, of the empty substring
  std::vector<Transition> transitions_;
  std::vector<int32_t> slots_;  // of transitions_, by a hash of from and token
  int32_t last_ = 0;            // of the whole text
  Match match_;                 // of its end
  int64_t num_tokens_ = 0;
};

}  // namespace heddle
