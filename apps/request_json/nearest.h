#pragma once

#include <span>
#include <string>
#include <string_view>

namespace heddle::app {

/// The word of `known`, which is not empty, that is nearest to `word` by
/// files::edit_distance; the first of several.
[[nodiscard]] std::string_view nearest(std::string_view word,
                                       std::span<const std::string_view> known);

/// "; did you mean \"temperature\"?" for an unknown field, where a field of `known` is within two
/// edits of it or means it in other programs' requests ("n_predict"); else empty.
[[nodiscard]] std::string did_you_mean(std::string_view field,
                                       std::span<const std::string_view> known);

}  // namespace heddle::app
