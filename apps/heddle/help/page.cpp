#include "help/page.h"

#include <algorithm>
#include <cstdlib>
#include <unistd.h>

namespace heddle::app {
namespace {

constexpr size_t kWidth = 80;
constexpr size_t kIndent = 2;

}  // namespace

Style style_of_stdout() {
  const char* no_color = std::getenv("NO_COLOR");
  const bool refused = no_color != nullptr && *no_color != '\0';
  return !refused && isatty(STDOUT_FILENO) != 0 ? Style::kBold : Style::kPlain;
}

std::vector<std::string> wrap_words(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    if (text.empty()) break;
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(word.size());
    if (!lines.empty() && lines.back().size() + 1 + word.size() <= width) {
      lines.back().append(" ").append(word);
    } else {
      lines.emplace_back(word);
    }
  }
  for (std::string& line : lines) std::ranges::replace(line, kNoBreak, ' ');
  return lines;
}

void Page::gap() {
  if (!text_.empty() && !text_.ends_with("\n\n")) text_ += "\n";
}

void Page::heading(std::string_view text) {
  gap();
  if (style_ == Style::kBold) {
    text_.append("\033[1m").append(text).append("\033[0m\n");
  } else {
    text_.append(text).append("\n");
  }
}

void Page::paragraph(std::string_view text) {
  for (const std::string& words : wrap_words(text, kWidth)) text_.append(words).append("\n");
}

void Page::line(std::string_view text) { text_.append(kIndent, ' ').append(text).append("\n"); }

void Page::entry(const std::string& term, std::string_view text, size_t column) {
  std::string start = std::string(kIndent, ' ') + term;
  if (start.size() + kIndent > column) {
    text_.append(start).append("\n");
    start.clear();
  }
  for (const std::string& words : wrap_words(text, kWidth - column)) {
    start.resize(column, ' ');
    text_.append(start).append(words).append("\n");
    start.clear();
  }
  if (!start.empty()) text_.append(start).append("\n");
}

}  // namespace heddle::app
