#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle::app {

enum class Style { kPlain, kBold };  // how headings are shown

/// Bold where standard output is a terminal and NO_COLOR is not set, or empty.
[[nodiscard]] Style style_of_stdout();

/// A space at which no line ends.
inline constexpr char kNoBreak = '\037';

/// The words of `text` in lines of up to `width` characters; a longer word has a line of its own.
[[nodiscard]] std::vector<std::string> wrap_words(std::string_view text, size_t width);

/// Text for a terminal of 80 columns, put together from top to bottom.
class Page {
 public:
  explicit Page(Style style) : style_(style) {}

  void heading(std::string_view text);  // with an empty line above
  void paragraph(std::string_view text);
  /// A line that is not wrapped, indented.
  void line(std::string_view text);
  /// `term`, and from `column` on what it means; on the next line where the term is too long.
  void entry(const std::string& term, std::string_view text, size_t column);
  void gap();  // an empty line, but not at the top or after another

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  Style style_;
  std::string text_;
};

}  // namespace heddle::app
