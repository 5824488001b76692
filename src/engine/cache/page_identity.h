#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heddle {

/// All that must be equal for one engine to use pages that another one has computed: named parts,
/// such as the model's digest, the build, the device and the type of keys and values. A line
/// "name=value" each, so that a person can read them in a file, and a warning can say which part
/// differs.
class PageIdentity {
 public:
  /// Throws Error for a name that is empty or has more than a-z, 0-9 and "_", for a value with
  /// control characters, and where the text passes kMaxBytes. A part is added once.
  void add(std::string_view name, std::string_view value);
  void add(std::string_view name, int64_t value);

  /// In the order in which they were added.
  [[nodiscard]] const std::string& text() const { return text_; }

  static constexpr size_t kMaxBytes = size_t{64} << 10;

 private:
  std::string text_;
};

/// How the identity of what lies on disk differs from `ours`, to follow a file's name: "was made
/// with page_size 32, this engine has 16". Takes any bytes for `theirs`; they are not equal.
[[nodiscard]] std::string identity_difference(std::string_view theirs, std::string_view ours);

}  // namespace heddle
