#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/rules/schema/char_set.h"

namespace heddle::grammar {

/// Texts, as a regular expression describes them.
struct TextPattern {
  enum class Kind : uint8_t { kClass, kSequence, kAlternatives, kRepeat };
  static constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

  Kind kind = Kind::kSequence;  // of nothing: the empty text
  CharSet set{};                // of a class: one of these characters
  std::vector<TextPattern> parts{};
  int64_t min = 0, max = 0;  // of a repeat

  /// How many characters its texts have.
  [[nodiscard]] int64_t shortest() const;
  [[nodiscard]] int64_t longest() const;  // kNoEnd: as many as they like
};

[[nodiscard]] TextPattern one_of(CharSet set);
[[nodiscard]] TextPattern sequence_of(std::vector<TextPattern> parts);
[[nodiscard]] TextPattern repeat_of(TextPattern part, int64_t min, int64_t max);

/// The texts of a pattern that have some, so that it can be repeated without end.
[[nodiscard]] TextPattern without_empty(const TextPattern& pattern);

/// Cuts a pattern to texts of a length; false: it has no form for it, and is as it was.
[[nodiscard]] bool restrict_length(TextPattern& pattern, int64_t min, int64_t max);

class PatternFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The texts in which a regular expression finds something: what all of ECMA 262, Python and the
/// usual libraries agree on, and where they differ, what all of them accept. Throws PatternFault,
/// which says what it has that is not supported.
[[nodiscard]] TextPattern parse_pattern(std::string_view text);

}  // namespace heddle::grammar
