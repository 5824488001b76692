#include "chat/display.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sys/ioctl.h>
#include <unistd.h>

#include "flush_answers.h"

namespace heddle::app {
namespace {

constexpr const char* kBold = "\033[1m";
constexpr const char* kDim = "\033[2m";
constexpr const char* kRed = "\033[31m";
constexpr const char* kPlain = "\033[0m";
constexpr const char* kReplacement = "\xEF\xBF\xBD";
constexpr int kUsualWidth = 80;

/// Whether colours may be written to a file: https://no-color.org.
bool takes_colour(int file) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool wanted = no_color == nullptr || *no_color == '\0';
  return wanted && isatty(file) != 0 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

int terminal_width() {
  winsize size = {};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsualWidth;
}

/// The text with U+FFFD for control characters, C0 but newline and tabulator, DEL, and C1.
std::string without_controls(std::string_view text) {
  std::string shown;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {
      shown += kReplacement;
      ++i;
    } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) {
      shown += kReplacement;
    } else {
      shown += text[i];
    }
  }
  return shown;
}

void write_line(const std::string& text, const char* before, const char* after) {
  std::fputs((before + without_controls(text) + after + "\n").c_str(), stderr);
}

}  // namespace

ChatDisplay::ChatDisplay(bool interactive)
    : interactive_(interactive),
      terminal_out_(isatty(STDOUT_FILENO) != 0),
      colour_out_(takes_colour(STDOUT_FILENO)),
      colour_err_(takes_colour(STDERR_FILENO)) {}

void ChatDisplay::answer(const std::string& text) {
  if (text.empty()) return;
  std::cout << (terminal_out_ ? without_controls(text) : text);
  std::cout.flush();
}

void ChatDisplay::end_answer() {
  std::cout << "\n";
  flush_answers(std::cout);
}

void ChatDisplay::heading(const std::string& name) {
  std::cout << (colour_out_ ? kBold : "") << "[" << without_controls(name) << "]"
            << (colour_out_ ? kPlain : "") << "\n";
}

int ChatDisplay::num_columns(int num_answers) const {
  return terminal_out_ ? columns_that_fit(terminal_width(), num_answers) : 1;
}

void ChatDisplay::columns(const std::vector<ChatColumn>& columns, int per_band) {
  std::vector<ChatColumn> shown;
  for (const auto& [heading, text] : columns) {
    shown.push_back({"[" + heading + "]", without_controls(text)});
  }
  std::cout << side_by_side(shown, per_band, terminal_width(), colour_out_ ? kBold : "",
                            colour_out_ ? kPlain : "");
  flush_answers(std::cout);
}

void ChatDisplay::tell(const std::string& text) const { write_line(text, "", ""); }

void ChatDisplay::note(const std::string& text) const {
  if (interactive_) remark(text);
}

void ChatDisplay::remark(const std::string& text) const {
  write_line("(" + text + ")", colour_err_ ? kDim : "", colour_err_ ? kPlain : "");
}

void ChatDisplay::error(const std::string& text) const {
  write_line("heddle: " + text, colour_err_ ? kRed : "", colour_err_ ? kPlain : "");
}

void ChatDisplay::progress(const std::string& text) const {
  if (interactive_ && isatty(STDERR_FILENO) != 0) {
    std::fputs(("\r\033[K" + text).c_str(), stderr);
  }
}

}  // namespace heddle::app
