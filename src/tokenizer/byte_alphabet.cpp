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

/// The character of each byte.
constexpr std::array<uint16_t, 256> kCharacterOf = [] {
  std::array<uint16_t, 256> character_of{};
  for (uint16_t character = 0; character < kAlphabetEnd; ++character) {
    const int16_t byte = kByteOf[character];
    if (byte != kNoByte) character_of[static_cast<uint8_t>(byte)] = character;
  }
  return character_of;
}();
static_assert(kByteOf[0x120] == ' ' && kByteOf[0x143] == 0xAD && kByteOf[' '] == kNoByte);

/// Appends the bytes; false where a character is not of the alphabet.
bool read_spelling(std::string_view spelling, std::string& bytes) {
  bytes.reserve(spelling.size());
  for (size_t i = 0; i < spelling.size(); ++i) {
    unsigned character = static_cast<uint8_t>(spelling[i]);
    if (character >= 0x80) {  // the alphabet's other characters are of two bytes
      const unsigned next = i + 1 < spelling.size() ? static_cast<uint8_t>(spelling[i + 1]) : 0u;
      if ((character & 0xE0u) != 0xC0u || (next & 0xC0u) != 0x80u) return false;
      character = ((character & 0x1Fu) << 6) | (next & 0x3Fu);
      if (character < 0x80) return false;  // spelled longer than needed
      ++i;
    }
    if (character >= kByteOf.size() || kByteOf[character] == kNoByte) return false;
    bytes += static_cast<char>(kByteOf[character]);
  }
  return true;
}

}  // namespace

std::string bytes_of_spelling(std::string_view spelling) {
  std::string bytes;
  return read_spelling(spelling, bytes) ? bytes : std::string(spelling);
}

bool is_spelling(std::string_view text) {
  std::string bytes;
  return read_spelling(text, bytes);
}

std::string spelling_of_bytes(std::string_view bytes) {
  std::string spelling;
  spelling.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const uint16_t character = kCharacterOf[static_cast<uint8_t>(c)];
    if (character < 0x80) {
      spelling += static_cast<char>(character);
    } else {
      spelling += static_cast<char>(0xC0 | character >> 6);
      spelling += static_cast<char>(0x80 | (character & 0x3F));
    }
  }
  return spelling;
}

}  // namespace heddle::tokenizer
