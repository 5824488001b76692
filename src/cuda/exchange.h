#pragma once

#include <cstddef>
#include <limits>
#include <span>

namespace heddle::cuda {

/// Bytes of ExecContext::exchange that belong to one use of it. The words that an op keeps there
/// say by themselves which launch wrote them, or are zero between launches, and stay when one ends;
/// so no other op may write to them, ever. Each family declares the ranges of its ops;
/// tests/exchange holds them against each other.
struct ExchangeRange {
  static constexpr size_t kToTheEnd = std::numeric_limits<size_t>::max();

  size_t begin,
      bytes;  // `bytes` may be kToTheEnd: all that the exchange of a context has from there on

  [[nodiscard]] constexpr size_t end() const {
    return bytes == kToTheEnd ? kToTheEnd : begin + bytes;
  }
  [[nodiscard]] constexpr bool overlaps(const ExchangeRange& other) const {
    return begin < other.end() && other.begin < end();
  }
  /// Whether an exchange of so many bytes holds the range; of one without an end, its beginning.
  [[nodiscard]] constexpr bool fits(size_t exchange_bytes) const {
    return bytes == kToTheEnd ? begin <= exchange_bytes : end() <= exchange_bytes;
  }
  /// Its words in the exchange of a context, null where that is too small.
  template <class Word>
  [[nodiscard]] Word* words_in(std::span<std::byte> exchange) const {
    return fits(exchange.size()) ? reinterpret_cast<Word*>(exchange.data() + begin) : nullptr;
  }
};

}  // namespace heddle::cuda
