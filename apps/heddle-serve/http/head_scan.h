#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heddle::serve {

/// Looks at the lines of a request's head as they come, before anything else reads them: what RFC
/// 9112 forbids is refused and never guessed at, so that no proxy can read another request
/// than this server does.
class HeadScan {
 public:
  static constexpr size_t kMostBytes = 16 << 10;

  enum class State : uint8_t { kOpen, kWhole, kWrong };
  /// `bytes` begins with the head, perhaps after empty lines, and has all that has come of it. Each
  /// line is looked at once, however many calls it takes.
  State scan(std::string_view bytes);

  /// Of a wrong head: 400, 417, 431, 501 or 505, and why.
  [[nodiscard]] unsigned status() const { return status_; }
  [[nodiscard]] const std::string& why() const { return why_; }

 private:
  State refuse(unsigned status, std::string why);
  State take_line(std::string_view line);
  State take_request_line(std::string_view line);
  State take_field(std::string_view line);
  State take_end();
  State take_special(std::string_view name, std::string_view value);

  size_t begin_ = 0;     // of the first line that has not ended
  size_t searched_ = 0;  // bytes after that in which no line ends
  bool has_request_line_ = false, is_old_ = false, has_encoding_ = false, has_length_ = false;
  bool has_host_ = false;
  unsigned status_ = 0;
  std::string why_;
};

}  // namespace heddle::serve
