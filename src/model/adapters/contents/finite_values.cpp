#include "model/adapters/contents/finite_values.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "heddle/core/dispatch.h"
#include "heddle/core/error.h"

#include "files/printable.h"

namespace heddle::model {
namespace {

/// A word of eight bytes holds 2 or 4 values. Without its sign each lies below half of its range,
/// so adding kHalf - limit to it sets its highest bit, and no other value's, where it is above the
/// limit.
struct Lanes {
  uint64_t unsigned_bits, addend, highest;
};

template <class Bits>
constexpr Bits kHalf = std::numeric_limits<Bits>::max() / 2;

template <class Bits>
constexpr Lanes lanes_for(Bits limit) {
  const auto repeat = [](Bits bits) {
    uint64_t word = 0;
    for (size_t i = 0; i < sizeof(word) / sizeof(bits); ++i) {
      word |= uint64_t{bits} << (8 * sizeof(bits) * i);
    }
    return word;
  };
  return {repeat(kHalf<Bits>), repeat(static_cast<Bits>(kHalf<Bits> - limit)),
          repeat(static_cast<Bits>(kHalf<Bits> + 1))};
}

/// The bits of the largest value of the dtype that counts as finite.
template <class T>
uint32_t limit_of(std::optional<DType> rounded_to) {
  constexpr uint32_t kOf16Bits = std::is_same_v<T, half> ? 0x7bff : 0x7f7f;
  const bool is_f32 = std::is_same_v<T, float>;
  if (rounded_to == DType::kFloat16 && !std::is_same_v<T, half>) {
    // Below 65520, from which on f16 rounds to infinity.
    return is_f32 ? 0x477fefff : 0x477f;
  }
  if (rounded_to == DType::kBFloat16 && is_f32) return 0x7f7f7fff;  // more is rounded to infinity
  return is_f32 ? 0x7f7fffff : kOf16Bits;
}

/// The first value above the limit, or -1.
template <class T, class Bits>
int64_t find_above(std::span<const std::byte> values, Bits limit) {
  constexpr int64_t kPerWord = sizeof(uint64_t) / sizeof(T), kWordsAtOnce = 64;
  const Lanes lanes = lanes_for<Bits>(limit);
  const auto count = static_cast<int64_t>(values.size() / sizeof(T));
  int64_t i = 0;
  for (; i + kWordsAtOnce * kPerWord <= count; i += kWordsAtOnce * kPerWord) {
    uint64_t found = 0;
    for (int64_t w = 0; w < kWordsAtOnce; ++w) {
      uint64_t word;
      std::memcpy(&word, values.data() + (i + w * kPerWord) * int64_t{sizeof(T)}, sizeof(word));
      found |= (word & lanes.unsigned_bits) + lanes.addend;
    }
    if ((found & lanes.highest) != 0) break;
  }
  for (; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, values.data() + i * int64_t{sizeof(T)}, sizeof(bits));
    if ((bits & kHalf<Bits>) > limit) return i;
  }
  return -1;
}

}  // namespace

int64_t find_not_finite(DType dtype, std::span<const std::byte> values,
                        std::optional<DType> rounded_to) {
  int64_t at = -1;
  dispatch_dtype<float, half, bfloat16>(dtype, "an adapter", [&]<class T>() {
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;
    at = find_above<T, Bits>(values, static_cast<Bits>(limit_of<T>(rounded_to)));
  });
  return at;
}

void refuse_value(const std::string& path, const StoredValues& values, int64_t at,
                  std::optional<DType> rounded_to) {
  float number = 0;
  dispatch_dtype<float, half, bfloat16>(values.dtype, "an adapter", [&]<class T>() {
    T value;
    std::memcpy(&value, values.data + at * int64_t{sizeof(T)}, sizeof(value));
    number = to_float(value);
  });
  if (std::isfinite(number)) {
    throw_error(ErrorCode::kInvalidArgument, path, ": tensor ", files::quote(values.name), " has ",
                number, " at [", at / values.columns, ", ", at % values.columns,
                "], which is out of range for ", *rounded_to,
                ", the type that the GPU computes in");
  }
  throw_error(ErrorCode::kInvalidArgument, path, ": tensor ", files::quote(values.name), " has ",
              std::isnan(number) ? "NaN" : "infinity", " at [", at / values.columns, ", ",
              at % values.columns, "]; a training that diverged leaves such values");
}

}  // namespace heddle::model
