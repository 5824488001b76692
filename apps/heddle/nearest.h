#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace heddle::app {

/// The fewest insertions, deletions and replacements of bytes that make `to` out of `from`
/// (Levenshtein 1966).
[[nodiscard]] size_t edit_distance(std::string_view from, std::string_view to);

/// The word of `known`, which is not empty, that is nearest to `word` by edit_distance; the first
/// of several.
[[nodiscard]] std::string_view nearest(std::string_view word,
                                       std::span<const std::string_view> known);

}  // namespace heddle::app
