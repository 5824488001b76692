#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <string_view>
#include <type_traits>

namespace heddle {

/// 128 bits of which equal contents have the same, and others, by all odds, not.
struct Digest {
  uint64_t low = 0, high = 0;

  friend bool operator==(const Digest&, const Digest&) = default;
};

/// Values that are equal where their bytes are, and floats, which are taken by their bits. What
/// could be meant as text or as a list has no length here, so it is none of them.
template <class T>
concept HashedByBytes =
    std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> && !std::ranges::range<T> &&
    (std::has_unique_object_representations_v<T> || std::is_same_v<T, float> ||
     std::is_same_v<T, double>);

/// The digest of what is added, piece by piece: XXH3 of 128 bits over the bytes in their order. It
/// allocates nothing, and a copy goes on from where its original is.
class Hasher {
 public:
  static constexpr size_t kSecretBytes = 192;

  /// Without a secret: the same digests in every process. Anyone can compute contents that have one
  /// digest, so it is for where nothing is gained by that.
  Hasher() noexcept;
  /// With a secret [kSecretBytes], which outlives the hasher. XXH3 is no cryptographic hash, and
  /// nothing proves how hard it is to deceive; but where the secret stays in the process, as do the
  /// digests, others cannot compute contents that have one digest. They can only try some.
  explicit Hasher(std::span<const std::byte> secret);

  /// The bytes and nothing else: who adds several such pieces adds their lengths, too.
  Hasher& add(std::span<const std::byte> bytes) noexcept;
  /// The length of the text and then the text, so that neighbours do not run together.
  Hasher& add(std::string_view text) noexcept;
  template <HashedByBytes T>
  Hasher& add(const T& value) noexcept {
    return add(std::as_bytes(std::span(&value, 1)));
  }

  /// Of all that was added so far; more may follow.
  [[nodiscard]] Digest digest() const noexcept;

 private:
  static constexpr size_t kStateBytes = 576;

  alignas(64) std::array<std::byte, kStateBytes> state_{};  // XXH3's
};

/// Random bytes [Hasher::kSecretBytes], drawn once in a process.
[[nodiscard]] std::span<const std::byte> process_secret();

/// For hash tables: XXH3 of 64 bits.
[[nodiscard]] uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed) noexcept;

}  // namespace heddle
