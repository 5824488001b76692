#include "fetch/web_address.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <netinet/in.h>
#include <span>

namespace heddle::fetch {
namespace {

/// The addresses whose first `num_bits` bits are those of `prefix`.
template <size_t kBytes>
struct Network {
  std::array<uint8_t, kBytes> prefix;
  size_t num_bits;

  [[nodiscard]] bool has(std::span<const uint8_t> address) const {
    for (size_t bit = 0; bit < num_bits; ++bit) {
      const uint8_t mask = static_cast<uint8_t>(0x80u >> (bit % 8));
      if (((prefix[bit / 8] ^ address[bit / 8]) & mask) != 0) return false;
    }
    return true;
  }
};

/// The special blocks of IANA's registry that are not globally reachable, and multicast.
constexpr Network<4> kPrivate4[] = {
    {{0, 0, 0, 0}, 8},      {{10, 0, 0, 0}, 8},    {{100, 64, 0, 0}, 10},   {{127, 0, 0, 0}, 8},
    {{169, 254, 0, 0}, 16}, {{172, 16, 0, 0}, 12}, {{192, 0, 0, 0}, 24},    {{192, 0, 2, 0}, 24},
    {{192, 168, 0, 0}, 16}, {{198, 18, 0, 0}, 15}, {{198, 51, 100, 0}, 24}, {{203, 0, 113, 0}, 24},
    {{224, 0, 0, 0}, 3},
};
constexpr Network<16> kPrivate6[] = {
    {{}, 127},                             // :: and ::1
    {{0xfc}, 7},                           // unique local
    {{0xfe, 0x80}, 10},                    // link local
    {{0xff}, 8},                           // multicast
    {{0x20, 0x01, 0x0d, 0xb8}, 32},        // documentation
    {{0x01, 0x00, 0, 0, 0, 0, 0, 0}, 64},  // discard
};
/// Whose last four bytes are an address of IPv4.
constexpr Network<16> kEmbeds4[] = {
    {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 96},
    {{0, 0x64, 0xff, 0x9b}, 96},
};

bool is_private4(std::span<const uint8_t> address) {
  return std::ranges::any_of(kPrivate4, [&](const auto& network) { return network.has(address); });
}

bool is_private6(std::span<const uint8_t> address) {
  const auto has = [&](const Network<16>& network) { return network.has(address); };
  if (std::ranges::any_of(kEmbeds4, has)) return is_private4(address.subspan(12));
  return std::ranges::any_of(kPrivate6, has);
}

}  // namespace

bool is_private_address(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in whole{};
    std::memcpy(&whole, &address, sizeof whole);
    std::array<uint8_t, 4> bytes{};
    std::memcpy(bytes.data(), &whole.sin_addr, bytes.size());
    return is_private4(bytes);
  }
  if (address.sa_family == AF_INET6) {
    sockaddr_in6 whole{};
    std::memcpy(&whole, &address, sizeof whole);
    std::array<uint8_t, 16> bytes{};
    std::memcpy(bytes.data(), &whole.sin6_addr, bytes.size());
    return is_private6(bytes);
  }
  return true;  // no address of the internet
}

}  // namespace heddle::fetch
