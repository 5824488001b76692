#include "tokenizer/utf8.h"

#include <cstdint>

namespace heddle::tokenizer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// What a byte string begins with: a character, a part of one that the next byte breaks, or one
/// that the end cuts short.
struct Beginning {
  enum Kind : uint8_t { kCharacter, kBroken, kCut } kind;
  size_t size;
};

/// The bytes that may follow a lead byte (Unicode 15, table 3-7): `count` of them, the first within
/// [low, high].
struct Continuation {
  size_t count;
  uint8_t low, high;
};

Continuation continuation_of(uint8_t lead) {
  if (lead < 0x80) return {0, 0, 0};
  if (lead >= 0xC2 && lead <= 0xDF) return {1, 0x80, 0xBF};
  if (lead == 0xE0) return {2, 0xA0, 0xBF};  // below: spelled longer than needed
  if (lead == 0xED) return {2, 0x80, 0x9F};  // above: surrogates
  if (lead >= 0xE1 && lead <= 0xEF) return {2, 0x80, 0xBF};
  if (lead == 0xF0) return {3, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {3, 0x80, 0xBF};
  if (lead == 0xF4) return {3, 0x80, 0x8F};  // above: past U+10FFFF
  return {0, 1, 0};
}

/// bytes [1 or more]
Beginning beginning_of(std::string_view bytes) {
  const Continuation next = continuation_of(static_cast<uint8_t>(bytes[0]));
  if (next.low > next.high) return {Beginning::kBroken, 1};
  for (size_t i = 1; i <= next.count; ++i) {
    if (i == bytes.size()) return {Beginning::kCut, i};
    const auto byte = static_cast<uint8_t>(bytes[i]);
    const uint8_t low = i == 1 ? next.low : 0x80, high = i == 1 ? next.high : 0xBF;
    if (byte < low || byte > high) return {Beginning::kBroken, i};
  }
  return {Beginning::kCharacter, next.count + 1};
}

/// Appends the text of `bytes`, but for a character that their end cuts short; returns how many
/// bytes that one has.
size_t append_text(std::string_view bytes, std::string& text) {
  while (!bytes.empty()) {
    const Beginning part = beginning_of(bytes);
    if (part.kind == Beginning::kCut) return part.size;
    text.append(part.kind == Beginning::kCharacter ? bytes.substr(0, part.size) : kReplacement);
    bytes.remove_prefix(part.size);
  }
  return 0;
}

}  // namespace

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  if (append_text(bytes, text) > 0) text += kReplacement;
  return text;
}

std::string Utf8Stream::push(std::string_view bytes) {
  pending_ += bytes;
  std::string text;
  const size_t cut = append_text(pending_, text);
  pending_.erase(0, pending_.size() - cut);
  return text;
}

std::string Utf8Stream::finish() {
  const bool cut = !pending_.empty();
  pending_.clear();
  return std::string(cut ? kReplacement : "");
}

}  // namespace heddle::tokenizer
