#include "core/digest.h"

#include <cerrno>
#include <cstring>
#include <new>
#include <sys/random.h>

#define XXH_INLINE_ALL  // the header has all of it, so that there is no library to be linked
#include <xxhash.h>

#include "heddle/core/error.h"

namespace heddle {
namespace {

using Secret = std::array<std::byte, Hasher::kSecretBytes>;

XXH3_state_t* state_at(std::byte* memory) {
  return std::launder(reinterpret_cast<XXH3_state_t*>(memory));
}

const XXH3_state_t* state_at(const std::byte* memory) {
  return std::launder(reinterpret_cast<const XXH3_state_t*>(memory));
}

Secret random_bytes() {
  Secret bytes;
  size_t num_bytes = 0;
  while (num_bytes < bytes.size()) {
    const ssize_t more = ::getrandom(bytes.data() + num_bytes, bytes.size() - num_bytes, 0);
    if (more < 0 && errno == EINTR) continue;
    HEDDLE_CHECK(more > 0, "the system gives no random bytes: ", std::strerror(errno));
    num_bytes += static_cast<size_t>(more);
  }
  return bytes;
}

}  // namespace

Hasher::Hasher() noexcept {
  static_assert(sizeof(XXH3_state_t) <= kStateBytes && alignof(XXH3_state_t) <= 64);
  XXH3_128bits_reset(::new (state_.data()) XXH3_state_t);
}

Hasher::Hasher(std::span<const std::byte> secret) {
  HEDDLE_CHECK(secret.size() == kSecretBytes, "a secret has ", secret.size(), " bytes, expected ",
               kSecretBytes);
  XXH3_128bits_reset_withSecret(::new (state_.data()) XXH3_state_t, secret.data(), secret.size());
}

Hasher& Hasher::add(std::span<const std::byte> bytes) noexcept {
  if (!bytes.empty()) XXH3_128bits_update(state_at(state_.data()), bytes.data(), bytes.size());
  return *this;
}

Hasher& Hasher::add(std::string_view text) noexcept {
  return add(uint64_t{text.size()}).add(std::as_bytes(std::span(text)));
}

Digest Hasher::digest() const noexcept {
  const XXH128_hash_t digest = XXH3_128bits_digest(state_at(state_.data()));
  return {digest.low64, digest.high64};
}

std::span<const std::byte> process_secret() {
  static const Secret secret = random_bytes();
  return secret;
}

uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed) noexcept {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace heddle
