#pragma once

#include <cstddef>
#include <string_view>

namespace heddle::files {

/// The fewest insertions, deletions and replacements of bytes that make `to` out of `from`
/// (Levenshtein 1966).
[[nodiscard]] size_t edit_distance(std::string_view from, std::string_view to);

}  // namespace heddle::files
