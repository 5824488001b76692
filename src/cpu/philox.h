#pragma once

#include <cstdint>

#include "core/random/philox.h"

namespace heddle::cpu {

/// What a request draws for at one step; each purpose has a stream of numbers of its own.
enum class Draw : uint32_t {
  kSample = 0,  // a token from the model's distribution
  kAccept = 1,  // whether to accept a drafted token
  kTarget = 2,  // the token that the target adds after the accepted ones
};

/// The draw of a request's step in [0, 1), a multiple of 2^-53: counter (step, purpose, rank) and
/// key seed, step and seed low word first; of the four words the first two count, the first as the
/// upper one. rank tells decisions of one step and purpose apart.
constexpr double uniform_draw(int64_t seed, int64_t step, Draw purpose = Draw::kSample,
                              uint32_t rank = 0) {
  const auto low = [](int64_t v) { return static_cast<uint32_t>(static_cast<uint64_t>(v)); };
  const auto high = [](int64_t v) { return static_cast<uint32_t>(static_cast<uint64_t>(v) >> 32); };
  const auto words = philox4x32_10({low(step), high(step), static_cast<uint32_t>(purpose), rank},
                                   {low(seed), high(seed)});
  const uint64_t bits = uint64_t{words[0]} << 32 | words[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace heddle::cpu
