#include "http/head_scan.h"

#include <algorithm>
#include <utility>

namespace heddle::serve {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\t') || byte == 0x7F;
}

/// A character of a method or of a field's name.
bool is_token(char c) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  const char lower = static_cast<char>(c | 0x20);
  return is_digit(c) || (lower >= 'a' && lower <= 'z') || kMarks.find(c) != std::string_view::npos;
}

bool is_name(std::string_view text) { return !text.empty() && std::ranges::all_of(text, is_token); }

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; }

bool equals(std::string_view text, std::string_view other) {
  return std::ranges::equal(text, other, {}, lower, lower);
}

std::string_view without_spaces(std::string_view text) {
  constexpr std::string_view kSpaces = " \t";
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) + 1 - first);
}

}  // namespace

HeadScan::State HeadScan::refuse(unsigned status, std::string why) {
  status_ = status;
  why_ = std::move(why);
  return State::kWrong;
}

HeadScan::State HeadScan::scan(std::string_view bytes) {
  for (;;) {
    const size_t end = bytes.find('\n', searched_);
    if (std::min(end, bytes.size()) > kMostBytes) {
      return refuse(431, "the headers have more than " + std::to_string(kMostBytes) + " bytes");
    }
    if (end == std::string_view::npos) {
      searched_ = bytes.size();
      return State::kOpen;
    }
    std::string_view line = bytes.substr(begin_, end - begin_);
    if (!line.ends_with('\r')) return refuse(400, "a line of the head ends without CR");
    line.remove_suffix(1);
    begin_ = searched_ = end + 1;
    if (std::ranges::any_of(line, is_control)) {
      return refuse(400, "a line of the head has control characters");
    }
    const State state = take_line(line);
    if (state != State::kOpen) return state;
  }
}

HeadScan::State HeadScan::take_line(std::string_view line) {
  if (line.empty()) return take_end();
  return has_request_line_ ? take_field(line) : take_request_line(line);
}

/// "GET /health HTTP/1.1"
HeadScan::State HeadScan::take_request_line(std::string_view line) {
  has_request_line_ = true;
  const size_t first = line.find(' '), last = line.rfind(' ');
  const std::string_view version = last == std::string_view::npos ? "" : line.substr(last + 1);
  const bool is_line = first < last && line.find(' ', first + 1) == last &&
                       is_name(line.substr(0, first)) && version.size() == 8 &&
                       version.starts_with("HTTP/") && is_digit(version[5]) && version[6] == '.' &&
                       is_digit(version[7]);
  if (!is_line) return refuse(400, "the first line is not an HTTP request");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return refuse(505, "the version of HTTP is not supported, expected 1.1 or 1.0");
  }
  is_old_ = version == "HTTP/1.0";
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const bool is_whole =
      equals(target.substr(0, 7), "http://") || equals(target.substr(0, 8), "https://");
  if (!target.starts_with('/') && !is_whole && target != "*") {
    return refuse(400, "the target of the request is not a path");
  }
  return State::kOpen;
}

/// "Host: localhost"
HeadScan::State HeadScan::take_field(std::string_view line) {
  if (line.front() == ' ' || line.front() == '\t') {
    return refuse(400, "a header continues on a second line");
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return refuse(400, "a line of the head has no colon");
  const std::string_view name = line.substr(0, colon);
  if (!is_name(name)) return refuse(400, "a header has no name, or a name with invalid characters");
  return take_special(name, without_spaces(line.substr(colon + 1)));
}

/// Those that say whose the request is and where it ends.
HeadScan::State HeadScan::take_special(std::string_view name, std::string_view value) {
  const auto is_second = [](bool& is_there) { return std::exchange(is_there, true); };
  if (equals(name, "Host")) {
    if (is_second(has_host_)) return refuse(400, "the header Host is given twice");
  } else if (equals(name, "Content-Length")) {
    if (is_second(has_length_)) return refuse(400, "the header Content-Length is given twice");
    if (value.empty() || !std::ranges::all_of(value, is_digit)) {
      return refuse(400, "the header Content-Length is not a number");
    }
  } else if (equals(name, "Transfer-Encoding")) {
    if (is_second(has_encoding_)) return refuse(400, "the header Transfer-Encoding is given twice");
    if (!equals(value, "chunked")) {
      return refuse(501, "the Transfer-Encoding is not supported, expected chunked");
    }
  } else if (equals(name, "Expect")) {
    if (!equals(value, "100-continue")) {
      return refuse(417, "the header Expect is not supported, expected 100-continue");
    }
  }
  return State::kOpen;
}

HeadScan::State HeadScan::take_end() {
  if (!has_request_line_) return State::kOpen;  // some clients end the body before with one
  if (has_encoding_ && has_length_) {
    return refuse(400, "the request has Transfer-Encoding and Content-Length");
  }
  if (has_encoding_ && is_old_) return refuse(400, "HTTP/1.0 has no Transfer-Encoding");
  return State::kWhole;
}

}  // namespace heddle::serve
