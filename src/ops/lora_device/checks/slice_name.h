#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

namespace heddle {

/// "slices[12]" and what follows it, as ".y" or ".y.size(1)", without an allocation: every call
/// names its slices, whether or not there is an error.
class SliceName {
 public:
  SliceName(size_t slice, std::string_view member) {
    char* end = std::ranges::copy(std::string_view("slices["), text_.begin()).out;
    end = std::to_chars(end, end + 20, slice).ptr;
    *end++ = ']';
    end = std::ranges::copy(member.substr(0, kMaxMember), end).out;
    *end = '\0';
  }
  [[nodiscard]] const char* c_str() const { return text_.data(); }

 private:
  static constexpr size_t kMaxMember = 16;
  std::array<char, 48> text_;
};

}  // namespace heddle
