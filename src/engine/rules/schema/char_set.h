#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace heddle::grammar {

/// Characters of Unicode, without surrogates.
class CharSet {
 public:
  struct Range {
    uint32_t first, last;
    bool operator==(const Range&) const = default;
  };
  CharSet() = default;
  /// In any order; they may overlap.
  explicit CharSet(std::vector<Range> ranges);

  [[nodiscard]] static const CharSet& all();
  [[nodiscard]] CharSet complement() const;
  [[nodiscard]] CharSet with(const CharSet& other) const;
  [[nodiscard]] CharSet within(const CharSet& other) const;
  [[nodiscard]] CharSet without(const CharSet& other) const;

  [[nodiscard]] bool has(uint32_t character) const;
  [[nodiscard]] bool empty() const { return ranges_.empty(); }
  /// In order, apart from one another.
  [[nodiscard]] const std::vector<Range>& ranges() const { return ranges_; }
  bool operator==(const CharSet&) const = default;

 private:
  std::vector<Range> ranges_{};
};

/// Those of a text, which is UTF-8.
[[nodiscard]] std::vector<uint32_t> characters_of(std::string_view text);

}  // namespace heddle::grammar
