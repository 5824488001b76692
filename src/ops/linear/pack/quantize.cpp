#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "heddle/core/error.h"
#include "heddle/ops/linear.h"

#include "ops/linear/format/block_format.h"

// Loops over the 32 values of a block are written so that compilers make vectors of them.

namespace heddle {
namespace {

constexpr int kBlock = 32;
constexpr int64_t kGrain = 256;  // blocks of a chunk of work
constexpr uint32_t kInfinityBits = 0x7f800000u;

/// Bits of the largest |x|, which order as the numbers do; from kInfinityBits on one is no number.
uint32_t largest_magnitude(const float* x, int n) {
  uint32_t largest = 0;
  for (int i = 0; i < n; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  }
  return largest;
}

/// 1 / d, or 0 where d is so small that f16, and so the block, holds a zero in its place.
float inverse_of(float d) {
  const float inverse = 1.0f / d;
  return std::isfinite(inverse) ? inverse : 0.0f;
}

/// Writes the scale; false where it is too large for f16.
bool write_half(float value, uint8_t*& p) {
  const half rounded = from_float<half>(value);
  std::memcpy(p, &rounded, sizeof(rounded));
  p += sizeof(rounded);
  return (rounded.bits & 0x7fffu) < 0x7c00u;
}

/// The codes of 4 or 5 bits: a word of the fifth bits, then nibbles, those of codes i and 16 + i in
/// byte i.
void write_codes(const BlockFormat& format, const std::array<uint8_t, kBlock>& codes, uint8_t* p) {
  if (format.code_bits == 5) {
    uint32_t high = 0;
    for (size_t i = 0; i < kBlock; ++i) high |= uint32_t{codes[i]} >> 4 << i;
    std::memcpy(p, &high, sizeof(high));
    p += sizeof(high);
  }
  for (size_t i = 0; i < kBlock / 2; ++i) {
    p[i] = static_cast<uint8_t>((codes[i] & 15) | codes[i + kBlock / 2] << 4);
  }
}

/// d = largest |x| / 127, codes round(x / d), halves away from zero.
bool quantize_8(const float* x, uint32_t largest, uint8_t* p) {
  const float d = std::bit_cast<float>(largest) / 127.0f, inverse = inverse_of(d);
  const bool fits = write_half(d, p);
  for (int i = 0; i < kBlock; ++i) {
    const float scaled = x[i] * inverse, magnitude = std::fabs(scaled);
    const int whole = static_cast<int>(magnitude);
    const int code = whole + static_cast<int>(2.0f * (magnitude - static_cast<float>(whole)));
    p[i] = static_cast<uint8_t>(scaled < 0 ? -code : code);
  }
  return fits;
}

/// d = x_j / -offset with the first x_j of largest magnitude, codes trunc(x / d + offset + 1/2).
bool quantize_centred(const BlockFormat& format, const float* x, uint32_t largest, uint8_t* p) {
  int at = 0;
  while ((std::bit_cast<uint32_t>(x[at]) & 0x7fffffffu) != largest) ++at;
  const auto offset = static_cast<float>(format.code_offset);
  const float d = x[at] / -offset, inverse = inverse_of(d);
  const bool fits = write_half(d, p);
  std::array<uint8_t, kBlock> codes;
  const int most = (1 << format.code_bits) - 1;
  for (int i = 0; i < kBlock; ++i) {
    const int code = static_cast<int>(x[i] * inverse + (offset + 0.5f));
    codes[size_t(i)] = static_cast<uint8_t>(std::min(code, most));
  }
  write_codes(format, codes, p);
  return fits;
}

/// m = min x, d = (max x - m) / largest code, codes trunc((x - m) / d + 1/2).
bool quantize_from_min(const BlockFormat& format, const float* x, uint8_t* p) {
  constexpr int kLanes = 8;
  std::array<float, kLanes> lows, highs;
  for (size_t i = 0; i < kLanes; ++i) lows[i] = highs[i] = x[i];
  for (size_t i = kLanes; i < kBlock; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lows[lane] = std::min(lows[lane], x[i + lane]);
      highs[lane] = std::max(highs[lane], x[i + lane]);
    }
  }
  const float min = *std::ranges::min_element(lows), max = *std::ranges::max_element(highs);
  const int most = (1 << format.code_bits) - 1;
  const float d = (max - min) / static_cast<float>(most), inverse = inverse_of(d);
  const bool scale_fits = write_half(d, p), min_fits = write_half(min, p);
  if (!scale_fits || !min_fits) return false;  // max - min may be infinite
  std::array<uint8_t, kBlock> codes;
  for (int i = 0; i < kBlock; ++i) {
    const int code = static_cast<int>((x[i] - min) * inverse + 0.5f);
    codes[size_t(i)] = static_cast<uint8_t>(std::min(code, most));
  }
  write_codes(format, codes, p);
  return true;
}

/// One value of a dense type; false where it is not finite, or would not be.
bool write_dense(WeightType type, float x, std::byte* stored) {
  if (type == WeightType::kF32) {
    std::memcpy(stored, &x, sizeof(x));
    return std::isfinite(x);
  }
  if (type == WeightType::kF16) {
    const half rounded = from_float<half>(x);
    std::memcpy(stored, &rounded, sizeof(rounded));
    return std::isfinite(to_float(rounded));
  }
  const bfloat16 rounded = from_float<bfloat16>(x);
  std::memcpy(stored, &rounded, sizeof(rounded));
  return std::isfinite(to_float(rounded));
}

/// False where the values have no place in the format.
bool quantize_block(WeightType type, const BlockFormat& format, const float* x, std::byte* stored) {
  if (format.block_size == 1) return write_dense(type, *x, stored);
  const uint32_t largest = largest_magnitude(x, kBlock);
  if (largest >= kInfinityBits) return false;
  auto* p = reinterpret_cast<uint8_t*>(stored);
  if (format.code_bits == 8) return quantize_8(x, largest, p);
  return format.has_min ? quantize_from_min(format, x, p) : quantize_centred(format, x, largest, p);
}

/// Says what is wrong with block `index`.
[[noreturn]] void refuse(WeightType type, std::span<const float> values, int64_t index) {
  const auto size = size_t(block_size(type));
  const std::span<const float> block = values.subspan(static_cast<size_t>(index) * size, size);
  const auto wrong = std::ranges::find_if_not(block, [](float x) { return std::isfinite(x); });
  const auto largest = std::ranges::max_element(
      block, {}, [](float x) { return std::isfinite(x) ? std::fabs(x) : 0.0f; });
  const auto at = (wrong != block.end() ? wrong : largest) - block.begin();
  const int64_t position = index * std::ssize(block) + at;
  HEDDLE_CHECK(wrong == block.end(), "value ", position, " is ", *wrong,
               ", expected a finite number");
  throw_error(ErrorCode::kInvalidArgument, "value ", position, " is ", *largest,
              ", which is out of the range of ", type);
}

}  // namespace

bool can_quantize(WeightType type) { return block_size(type) <= kBlock; }

void quantize(const ExecContext& ctx, std::span<std::byte> stored, WeightType type,
              std::span<const float> values) {
  if (!can_quantize(type)) {
    throw_error(ErrorCode::kUnsupported, "quantize: type ", type,
                " is read but not made, supported: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1");
  }
  const size_t expected = stored_bytes(type, std::ssize(values));
  HEDDLE_CHECK(stored.size() == expected, "quantize: stored holds ", stored.size(),
               " bytes, expected ", expected, " for ", values.size(), " weights of type ", type);
  const BlockFormat format = block_format(type);
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> first_wrong = kNone;
  const int64_t num_blocks = std::ssize(values) / format.block_size;
  parallel_for(
      ctx, num_blocks, kGrain * kBlock / format.block_size, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const bool fits = quantize_block(type, format, values.data() + i * format.block_size,
                                           stored.data() + i * format.stored_bytes);
          if (fits) continue;
          int64_t known = first_wrong.load();
          while (i < known && !first_wrong.compare_exchange_weak(known, i)) {
          }
          return;
        }
      });
  if (first_wrong != kNone) refuse(type, values, first_wrong);
}

}  // namespace heddle
