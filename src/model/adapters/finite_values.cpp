#include "model/adapters/finite_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "heddle/core/dispatch.h"
#include "heddle/core/error.h"

#include "files/printable.h"
#include "model/adapters/load_threads.h"

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
int64_t find_above(const StoredValues& values, Bits limit) {
  constexpr int64_t kPerWord = sizeof(uint64_t) / sizeof(T), kWordsAtOnce = 64;
  const Lanes lanes = lanes_for<Bits>(limit);
  const int64_t count = values.num_elements();
  int64_t i = 0;
  for (; i + kWordsAtOnce * kPerWord <= count; i += kWordsAtOnce * kPerWord) {
    uint64_t found = 0;
    for (int64_t w = 0; w < kWordsAtOnce; ++w) {
      uint64_t word;
      std::memcpy(&word, values.data + (i + w * kPerWord) * int64_t{sizeof(T)}, sizeof(word));
      found |= (word & lanes.unsigned_bits) + lanes.addend;
    }
    if ((found & lanes.highest) != 0) break;
  }
  for (; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, values.data + i * int64_t{sizeof(T)}, sizeof(bits));
    if ((bits & kHalf<Bits>) > limit) return i;
  }
  return -1;
}

/// Values, and the dtype that they are rounded to.
struct Checked {
  StoredValues values;
  std::optional<DType> rounded_to;

  /// The first value that is none of the finite ones, or -1.
  [[nodiscard]] int64_t find() const {
    int64_t at = -1;
    dispatch_dtype<float, half, bfloat16>(values.dtype, "an adapter", [&]<class T>() {
      using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;
      at = find_above<T, Bits>(values, static_cast<Bits>(limit_of<T>(rounded_to)));
    });
    return at;
  }
  [[noreturn]] void refuse(const Adapter& adapter, int64_t at) const {
    float number = 0;
    dispatch_dtype<float, half, bfloat16>(values.dtype, "an adapter", [&]<class T>() {
      T value;
      std::memcpy(&value, values.data + at * int64_t{sizeof(T)}, sizeof(value));
      number = to_float(value);
    });
    if (std::isfinite(number)) {
      throw_error(ErrorCode::kInvalidArgument, adapter.path(), ": tensor ",
                  files::quote(values.name), " has ", number, " at [", at / values.columns, ", ",
                  at % values.columns, "], which is out of range for ", *rounded_to,
                  ", the type that the GPU computes in");
    }
    throw_error(ErrorCode::kInvalidArgument, adapter.path(), ": tensor ", files::quote(values.name),
                " has ", std::isnan(number) ? "NaN" : "infinity", " at [", at / values.columns,
                ", ", at % values.columns, "]; a training that diverged leaves such values");
  }
};

/// All values of an adapter, of which each is read once.
class Finite {
 public:
  Finite(const Adapter& adapter, std::optional<DType> rounded_to) : rounded_to_(rounded_to) {
    for (const AdapterPair& pair : adapter.pairs()) add_pair(pair);
    add(adapter.score(), {});
    add(adapter.score_bias(), {});
    for (const VocabularyPart* part : {&adapter.embedding(), &adapter.head()}) {
      add(part->weight, rounded_to);
      add(part->token_rows, {});
      if (part->pair) add_pair(*part->pair);
    }
  }
  void check(const Adapter& adapter) const {
    std::vector<int64_t> found(all_.size());
    parallel_load(num_bytes_, all_.size(), [&](size_t i) { found[i] = all_[i].find(); });
    for (size_t i = 0; i < all_.size(); ++i) {
      if (found[i] >= 0) all_[i].refuse(adapter, found[i]);
    }
  }

 private:
  void add(const StoredValues& values, std::optional<DType> rounded_to) {
    if (!values.is_present()) return;
    all_.push_back({values, rounded_to});
    num_bytes_ += values.bytes().size();
  }
  void add_pair(const LowRank& pair) {
    add(pair.stored_a(), rounded_to_);
    add(pair.stored_b(), rounded_to_);
    for (const StoredValues* vector : pair.vectors()) add(*vector, {});
  }

  std::optional<DType> rounded_to_;
  std::vector<Checked> all_;
  size_t num_bytes_ = 0;
};

}  // namespace

void check_finite(const Adapter& adapter, std::optional<DType> rounded_to) {
  Finite(adapter, rounded_to).check(adapter);
}

}  // namespace heddle::model
