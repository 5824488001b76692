#include "chat/columns.h"

#include <algorithm>
#include <cwchar>
#include <utility>

namespace heddle::app {
namespace {

constexpr int kLeastWidth = 36, kMostColumns = 3;
constexpr std::string_view kGap = " | ";
constexpr int kTab = 4;

/// One character of a text: its bytes and the cells it takes.
struct Glyph {
  std::string_view bytes;
  int width;
};

std::vector<Glyph> glyphs_of(std::string_view text) {
  std::vector<Glyph> glyphs;
  std::mbstate_t state = {};
  while (!text.empty()) {
    wchar_t character = 0;
    size_t length = std::mbrtowc(&character, text.data(), text.size(), &state);
    if (length == 0 || length > text.size()) {  // no character of the locale
      character = L'?';
      length = 1;
      state = {};
    }
    glyphs.push_back({text.substr(0, length), std::max(wcwidth(character), 0)});
    text.remove_prefix(length);
  }
  return glyphs;
}

}  // namespace

int cells_of(std::string_view text) {
  int cells = 0;
  for (const Glyph& glyph : glyphs_of(text)) cells += glyph.width;
  return cells;
}

namespace {

/// One line of a text, without its end, in lines of `width`.
void wrap_line(std::string_view text, int width, std::vector<std::string>& lines) {
  std::string line;
  int used = 0;
  size_t last_blank = std::string::npos;  // in `line`
  for (const Glyph& glyph : glyphs_of(text)) {
    if (used + glyph.width > width) {
      std::string rest;
      if (glyph.bytes == " ") {
        last_blank = std::string::npos;
      } else if (last_blank != std::string::npos) {
        rest = line.substr(last_blank + 1);
        line.erase(last_blank);
      }
      lines.push_back(std::exchange(line, rest));
      used = cells_of(line);
      last_blank = std::string::npos;
      if (glyph.bytes == " ") continue;
    }
    if (glyph.bytes == " ") last_blank = line.size();
    line += glyph.bytes;
    used += glyph.width;
  }
  lines.push_back(line);
}

std::string padded(const std::string& text, int width) {
  return text + std::string(static_cast<size_t>(std::max(width - cells_of(text), 0)), ' ');
}

}  // namespace

std::vector<std::string> wrap(std::string_view text, int width) {
  std::string spaced;
  for (const char c : text) spaced += c == '\t' ? std::string(kTab, ' ') : std::string(1, c);
  std::vector<std::string> lines;
  for (size_t begin = 0; begin <= spaced.size();) {
    const size_t end = std::min(spaced.find('\n', begin), spaced.size());
    wrap_line(std::string_view(spaced).substr(begin, end - begin), std::max(width, 1), lines);
    begin = end + 1;
  }
  return lines;
}

int columns_that_fit(int terminal_width, int num_columns) {
  const int gap = static_cast<int>(kGap.size());
  const int fit = (terminal_width + gap) / (kLeastWidth + gap);
  return std::max(1, std::min({fit, kMostColumns, num_columns}));
}

std::string side_by_side(const std::vector<ChatColumn>& columns, int per_band, int terminal_width,
                         std::string_view before_heading, std::string_view after_heading) {
  const int gaps = static_cast<int>(kGap.size()) * (per_band - 1);
  const int width = (terminal_width - gaps) / per_band;
  std::string out;
  for (size_t begin = 0; begin < columns.size(); begin += static_cast<size_t>(per_band)) {
    const size_t end = std::min(columns.size(), begin + static_cast<size_t>(per_band));
    std::vector<std::vector<std::string>> texts;
    size_t height = 0;
    if (begin > 0) out += "\n";
    for (size_t i = begin; i < end; ++i) {
      texts.push_back(wrap(columns[i].text, width));
      height = std::max(height, texts.back().size());
      const std::string heading = wrap(columns[i].heading, width).front();
      out += (i > begin ? std::string(kGap) : "") + std::string(before_heading);
      out += (i + 1 < end ? padded(heading, width) : heading) + std::string(after_heading);
    }
    out += "\n";
    for (size_t row = 0; row < height; ++row) {
      for (size_t i = 0; i < texts.size(); ++i) {
        const std::string text = row < texts[i].size() ? texts[i][row] : "";
        out +=
            (i > 0 ? std::string(kGap) : "") + (i + 1 < texts.size() ? padded(text, width) : text);
      }
      out += "\n";
    }
  }
  return out;
}

}  // namespace heddle::app
