#pragma once

#include <cstdint>
#include <cstring>

namespace heddle {

// Eight bytes at once, as one word whose lowest byte is the first.

[[nodiscard]] inline uint64_t load_eight(const uint8_t* p) {
  uint64_t bytes;
  std::memcpy(&bytes, p, sizeof(bytes));
  return bytes;
}
inline void store_eight(uint8_t* p, uint64_t bytes) { std::memcpy(p, &bytes, sizeof(bytes)); }

[[nodiscard]] constexpr uint64_t in_each_byte(uint8_t value) {
  return 0x0101010101010101 * uint64_t{value};
}

/// The bytes 0, 2, 4 and 6, side by side.
[[nodiscard]] constexpr uint64_t even_bytes(uint64_t bytes) {
  bytes &= 0x00ff00ff00ff00ff;
  bytes = (bytes | bytes >> 8) & 0x0000ffff0000ffff;
  return (bytes | bytes >> 16) & 0x00000000ffffffff;
}
static_assert(even_bytes(0x0706050403020100) == 0x06040200);

/// Byte i is bit i of `bits`, 0 or 1.
[[nodiscard]] constexpr uint64_t a_bit_each(uint8_t bits) {
  const uint64_t at_its_place = in_each_byte(bits) & 0x8040201008040201;  // byte i: 1 << i or 0
  return (at_its_place + in_each_byte(0x7f)) >> 7 & in_each_byte(1);
}
static_assert(a_bit_each(0x81) == 0x0100000000000001);

}  // namespace heddle
