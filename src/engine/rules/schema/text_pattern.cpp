#include "engine/rules/schema/text_pattern.h"

#include <algorithm>
#include <utility>

namespace heddle::grammar {
namespace {

using Kind = TextPattern::Kind;

int64_t sum(int64_t a, int64_t b) {
  return a > TextPattern::kNoEnd - b ? TextPattern::kNoEnd : a + b;
}
int64_t product(int64_t a, int64_t b) {
  return a != 0 && b > TextPattern::kNoEnd / a ? TextPattern::kNoEnd : a * b;
}

bool has_fixed_length(const TextPattern& pattern) {
  return pattern.shortest() == pattern.longest();
}

}  // namespace

int64_t TextPattern::shortest() const {
  int64_t result = kind == Kind::kClass ? 1 : 0;
  if (kind == Kind::kAlternatives) result = kNoEnd;
  for (const TextPattern& part : parts) {
    const int64_t length = part.shortest();
    result = kind == Kind::kAlternatives ? std::min(result, length) : sum(result, length);
  }
  return kind == Kind::kRepeat ? product(result, min) : result;
}

int64_t TextPattern::longest() const {
  int64_t result = kind == Kind::kClass ? 1 : 0;
  for (const TextPattern& part : parts) {
    const int64_t length = part.longest();
    result = kind == Kind::kAlternatives ? std::max(result, length) : sum(result, length);
  }
  return kind == Kind::kRepeat ? product(result, max) : result;
}

TextPattern one_of(CharSet set) { return {.kind = Kind::kClass, .set = std::move(set)}; }

TextPattern sequence_of(std::vector<TextPattern> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  return {.kind = Kind::kSequence, .parts = std::move(parts)};
}

TextPattern repeat_of(TextPattern part, int64_t min, int64_t max) {
  TextPattern result{.kind = Kind::kRepeat, .min = min, .max = max};
  result.parts.push_back(std::move(part));
  return result;
}

TextPattern without_empty(const TextPattern& pattern) {
  if (pattern.shortest() > 0) return pattern;
  TextPattern result{.kind = Kind::kAlternatives};
  switch (pattern.kind) {
    case Kind::kClass: break;
    case Kind::kAlternatives:
      for (const TextPattern& part : pattern.parts) {
        if (part.longest() > 0) result.parts.push_back(without_empty(part));
      }
      break;
    case Kind::kSequence:  // the first of its parts that is not empty is this one
      for (size_t i = 0; i < pattern.parts.size(); ++i) {
        if (pattern.parts[i].longest() == 0) continue;
        std::vector<TextPattern> rest{without_empty(pattern.parts[i])};
        for (size_t j = i + 1; j < pattern.parts.size(); ++j) rest.push_back(pattern.parts[j]);
        result.parts.push_back(sequence_of(std::move(rest)));
      }
      break;
    case Kind::kRepeat:
      result = repeat_of(without_empty(pattern.parts.front()), 1, pattern.max);
      break;
  }
  return result;
}

bool restrict_length(TextPattern& pattern, int64_t min, int64_t max) {
  if (min <= pattern.shortest() && pattern.longest() <= max) return true;
  if (pattern.kind == Kind::kRepeat && pattern.parts.front().kind == Kind::kClass) {
    const int64_t low = std::max(pattern.min, min), high = std::min(pattern.max, max);
    if (low > high) return false;
    pattern.min = low;
    pattern.max = high;
    return true;
  }
  if (pattern.kind != Kind::kSequence) return false;
  TextPattern* open = nullptr;  // the part whose length is not fixed
  int64_t fixed = 0;
  for (TextPattern& part : pattern.parts) {
    if (has_fixed_length(part)) {
      fixed = sum(fixed, part.shortest());
    } else if (open == nullptr) {
      open = &part;
    } else {
      return false;
    }
  }
  if (open == nullptr || fixed > max) return false;
  return restrict_length(*open, std::max<int64_t>(min - fixed, 0),
                         max == TextPattern::kNoEnd ? max : max - fixed);
}

}  // namespace heddle::grammar
