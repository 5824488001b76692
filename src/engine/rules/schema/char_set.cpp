#include "engine/rules/schema/char_set.h"

#include <algorithm>
#include <utility>

namespace heddle::grammar {
namespace {

constexpr uint32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF, kLastCharacter = 0x10FFFF;

}  // namespace

CharSet::CharSet(std::vector<Range> ranges) {
  std::ranges::sort(ranges, {}, &Range::first);
  for (const Range& range : ranges) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

const CharSet& CharSet::all() {
  static const CharSet set({{0, kFirstSurrogate - 1}, {kLastSurrogate + 1, kLastCharacter}});
  return set;
}

CharSet CharSet::complement() const {
  std::vector<Range> rest;
  uint32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) rest.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCharacter) rest.push_back({next, kLastCharacter});
  return CharSet(std::move(rest)).within(all());
}

CharSet CharSet::with(const CharSet& other) const {
  std::vector<Range> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  return CharSet(std::move(both));
}

CharSet CharSet::within(const CharSet& other) const {
  std::vector<Range> common;
  for (size_t i = 0, j = 0; i < ranges_.size() && j < other.ranges_.size();) {
    const Range &a = ranges_[i], &b = other.ranges_[j];
    const uint32_t first = std::max(a.first, b.first), last = std::min(a.last, b.last);
    if (first <= last) common.push_back({first, last});
    ++(a.last < b.last ? i : j);
  }
  return CharSet(std::move(common));
}

CharSet CharSet::without(const CharSet& other) const { return within(other.complement()); }

bool CharSet::has(uint32_t character) const {
  return std::ranges::any_of(ranges_, [character](const Range& range) {
    return range.first <= character && character <= range.last;
  });
}

std::vector<uint32_t> characters_of(std::string_view text) {
  std::vector<uint32_t> characters;
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<uint8_t>(text[i]);
    const size_t size = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    uint32_t character = first < 0x80 ? first : first & (0x7Fu >> size);
    for (size_t j = 1; j < size && i + j < text.size(); ++j) {
      character = character << 6 | (static_cast<uint8_t>(text[i + j]) & 0x3F);
    }
    characters.push_back(character);
    i += size;
  }
  return characters;
}

}  // namespace heddle::grammar
