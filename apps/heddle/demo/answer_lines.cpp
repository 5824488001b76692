#include "demo/answer_lines.h"

#include <algorithm>

#include "chat/columns.h"

namespace heddle::app {
namespace {

constexpr const char* kDots = " ...";
constexpr int kColumn = (kDemoWidth - 3) / 2;  // of two, with a bar between
constexpr size_t kMaxLines = 4;
constexpr int kNameColumn = 12, kRunningColumn = (kDemoWidth - kNameColumn - 4) / 2;

/// The text with a space for each run of blanks and control characters: a model could otherwise
/// move the cursor.
std::string in_one_line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_blank = byte <= 0x20 || byte == 0x7F;
    if (!is_blank) line += c;
    if (is_blank && !line.empty() && line.back() != ' ') line += ' ';
  }
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

std::string shortened(const std::string& text) {
  const std::string line = in_one_line(text);
  if (line.empty()) return "(nothing)";
  std::vector<std::string> lines = wrap(line, kColumn);
  if (lines.size() <= kMaxLines) return line;
  lines.resize(kMaxLines);
  const int room = kColumn - static_cast<int>(std::string_view(kDots).size());
  lines.back() = wrap(lines.back(), room).front() + kDots;
  std::string cut;
  for (const std::string& part : lines) cut += (cut.empty() ? "" : "\n") + part;
  return cut;
}

/// The last line of the text in a column, filled up with spaces.
std::string end_of(const std::string& text, int width) {
  std::string line = wrap(in_one_line(text), width).back();
  const size_t cells = static_cast<size_t>(std::max(width - cells_of(line), 0));
  return line.append(cells, ' ');
}

}  // namespace

std::string running_lines(const std::vector<DemoQuestion>& questions) {
  std::string lines;
  for (const DemoQuestion& question : questions) {
    lines += end_of(question.adapter, kNameColumn) + "  " +
             end_of(question.of_adapter, kRunningColumn) + "  " +
             wrap(in_one_line(question.of_base), kRunningColumn).back() + "\n";
  }
  return lines;
}

std::string finished_lines(const DemoQuestion& question) {
  return "Question: " + in_one_line(question.prompt) + "\n" +
         side_by_side({{"base model:", shortened(question.of_base)},
                       {"adapter " + question.adapter + ":", shortened(question.of_adapter)}},
                      2, kDemoWidth, "", "");
}

}  // namespace heddle::app
