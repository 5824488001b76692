#pragma once

#include <cstdint>

namespace heddle::cuda {

/// cpu::uniform_draw (cpu/philox.h): philox4x32-10 with key `seed` and counter (step, purpose,
/// rank), the first two words as a multiple of 2^-53 in [0, 1).
__host__ __device__ constexpr double uniform_draw(int64_t seed, int64_t step, uint32_t purpose,
                                                  uint32_t rank) {
  const auto low = [](int64_t v) { return static_cast<uint32_t>(static_cast<uint64_t>(v)); };
  const auto high = [](int64_t v) { return static_cast<uint32_t>(static_cast<uint64_t>(v) >> 32); };
  uint32_t c0 = low(step), c1 = high(step), c2 = purpose, c3 = rank;
  uint32_t k0 = low(seed), k1 = high(seed);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(product0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const uint64_t bits = uint64_t{c0} << 32 | c1;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace heddle::cuda
