#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle::app {

/// A text under a heading.
struct ChatColumn {
  std::string heading, text;
};

/// The lines of a text in a column of `width` cells of the terminal: cut between words where that
/// is possible, within words that are longer than the column.
[[nodiscard]] std::vector<std::string> wrap(std::string_view text, int width);

/// The cells of the terminal that a text without line ends takes.
[[nodiscard]] int cells_of(std::string_view text);

/// How many columns fit side by side on a terminal of this width: 1 to 3, each at least 36 wide.
[[nodiscard]] int columns_that_fit(int terminal_width, int num_columns);

/// The texts side by side, `per_band` of them at a time, band under band. What is put around
/// headings takes no cells.
[[nodiscard]] std::string side_by_side(const std::vector<ChatColumn>& columns, int per_band,
                                       int terminal_width, std::string_view before_heading,
                                       std::string_view after_heading);

}  // namespace heddle::app
