#pragma once

#include <span>
#include <string_view>

namespace heddle::app {

/// The word of `known`, which is not empty, that the fewest insertions, deletions and replacements
/// of letters make out of `word` (Levenshtein 1966); the first of several.
[[nodiscard]] std::string_view nearest(std::string_view word,
                                       std::span<const std::string_view> known);

}  // namespace heddle::app
