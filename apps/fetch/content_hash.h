#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace heddle::fetch {

/// What a content is checked with: the hash that its source tells before any byte of it.
struct ContentHash {
  enum class Kind : uint8_t {
    kSha256,
    kGitBlob,  // SHA-1 of "blob SIZE", NUL and the content
    kMd5,
    kMd5OfParts,  // "MD5-N": of the MD5s of N parts, each of part_bytes but the last
  };
  Kind kind = Kind::kSha256;
  std::string hex{};  // lower case
  int64_t part_bytes = 0;

  friend bool operator==(const ContentHash&, const ContentHash&) = default;
};

/// Whether the text is what a hash of this kind looks like.
[[nodiscard]] bool is_hash(const ContentHash& hash);

/// Hashes bytes as they come.
class ContentHasher {
 public:
  /// For a hash of this kind, of a content of `size` bytes.
  ContentHasher(const ContentHash& hash, int64_t size);
  ContentHasher(ContentHasher&&) noexcept;
  ContentHasher& operator=(ContentHasher&&) noexcept;
  ~ContentHasher();

  void add(std::string_view bytes);
  /// The hash of all that was added, as ContentHash::hex has it; once.
  [[nodiscard]] std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace heddle::fetch
