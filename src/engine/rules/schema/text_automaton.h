#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "engine/rules/schema/char_set.h"
#include "engine/rules/schema/text_pattern.h"

namespace heddle::grammar {

/// A pattern as states and what leads from one to another. State 0 is the end; each text of the
/// pattern leads from `start` there.
struct TextAutomaton {
  struct Edge {
    CharSet set;  // empty: no character
    size_t to;
  };
  std::vector<std::vector<Edge>> edges{};  // of each state
  size_t start = 0;
};

/// Throws PatternFault where it has too many states.
[[nodiscard]] TextAutomaton automaton_of(const TextPattern& pattern);
/// Of the texts that both have.
[[nodiscard]] TextAutomaton intersection_of(const TextAutomaton& a, const TextAutomaton& b);

}  // namespace heddle::grammar
