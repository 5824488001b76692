#include "tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

namespace heddle::tokenizer {
namespace {

constexpr int kAlphabetEnd =
    0x144;  // one past the last character; the 68 from U+0100 on stand for invisible bytes
constexpr int16_t kNoByte = -1;

constexpr bool is_visible(int latin1) {
  return (latin1 >= '!' && latin1 <= '~') || (latin1 >= 0xA1 && latin1 != 0xAD);
}

/// The byte of each character, or kNoByte.
constexpr std::array<int16_t, kAlphabetEnd> kByteOf = [] {
  std::array<int16_t, kAlphabetEnd> byte_of{};
  int invisible = 0x100;
  for (int16_t byte = 0; byte < 256; ++byte) {
    byte_of[size_t(byte)] = is_visible(byte) ? byte : kNoByte;
    if (!is_visible(byte)) byte_of[size_t(invisible++)] = byte;
  }
  return byte_of;
}();
static_assert(kByteOf[0x120] == ' ' && kByteOf[0x143] == 0xAD && kByteOf[' '] == kNoByte);

}  // namespace

std::string bytes_of_spelling(std::string_view spelling) {
  std::string bytes;
  bytes.reserve(spelling.size());
  for (size_t i = 0; i < spelling.size(); ++i) {
    unsigned character = static_cast<uint8_t>(spelling[i]);
    if (character >= 0x80) {  // the alphabet's other characters are of two bytes
      const unsigned next = i + 1 < spelling.size() ? static_cast<uint8_t>(spelling[i + 1]) : 0u;
      if ((character & 0xE0u) != 0xC0u || (next & 0xC0u) != 0x80u) return std::string(spelling);
      character = ((character & 0x1Fu) << 6) | (next & 0x3Fu);
      if (character < 0x80) return std::string(spelling);  // spelled longer than needed
      ++i;
    }
    if (character >= kByteOf.size() || kByteOf[character] == kNoByte) return std::string(spelling);
    bytes += static_cast<char>(kByteOf[character]);
  }
  return bytes;
}

}  // namespace heddle::tokenizer
