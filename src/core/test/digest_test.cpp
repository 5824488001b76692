#include "core/digest.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "random.h"

namespace heddle {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string random_text(int64_t num_bytes) {
  std::string text(static_cast<size_t>(num_bytes), '\0');
  for (char& c : text) c = static_cast<char>(testing::random_int(-128, 127));
  return text;
}

Digest digest_of(std::string_view text) { return Hasher().add(bytes_of(text)).digest(); }

bool is_less(const Digest& a, const Digest& b) {
  return std::pair(a.high, a.low) < std::pair(b.high, b.low);
}

/// As `xxhsum -H2` prints them, and `xxhsum -H3` the third.
TEST(Digest, WithoutASecretItIsThatOfXxh3) {
  const Digest empty{.low = 0x6001c324468d497f, .high = 0x99aa06d3014798d8};
  EXPECT_EQ(Hasher().digest(), empty);
  EXPECT_EQ(digest_of("heddle"), (Digest{.low = 0x1054413ec3b56729, .high = 0x01e949a3c423ed80}));
  EXPECT_EQ(hash64({}, 0), 0x2d06800538d394c2u);
}

TEST(Digest, NothingAddedChangesNothing) {
  Hasher hasher;
  hasher.add(std::span<const std::byte>()).add(bytes_of("ab")).add(bytes_of(""));
  EXPECT_EQ(hasher.digest(), digest_of("ab"));
}

/// Through all lengths that XXH3 treats in a way of their own, and beyond its buffer.
TEST(Digest, PiecesGiveWhatTheWholeGives) {
  const std::vector<std::byte> secret(Hasher::kSecretBytes, std::byte{0x5a});
  for (int repeat = 0; repeat < 300; ++repeat) {
    const std::string text = random_text(testing::random_int(0, repeat < 200 ? 600 : 5000));
    for (const bool is_secret : {false, true}) {
      Hasher whole = is_secret ? Hasher(secret) : Hasher(), pieces = whole;
      whole.add(bytes_of(text));
      for (std::string_view rest = text; !rest.empty();) {
        const auto count = static_cast<size_t>(testing::random_int(0, std::ssize(rest)));
        pieces.add(bytes_of(rest.substr(0, count)));
        rest.remove_prefix(count);
      }
      ASSERT_EQ(pieces.digest(), whole.digest()) << text.size() << " bytes";
    }
  }
}

TEST(Digest, EveryBitCounts) {
  for (const int64_t num_bytes : {1, 3, 8, 16, 17, 128, 129, 240, 241, 1024, 1025}) {
    std::string text = random_text(num_bytes);
    const Digest before = digest_of(text);
    const auto at = static_cast<size_t>(testing::random_int(0, num_bytes - 1));
    text[at] = static_cast<char>(text[at] ^ (1 << testing::random_int(0, 7)));
    const Digest after = digest_of(text);
    EXPECT_NE(after.low, before.low) << num_bytes << " bytes, at " << at;
    EXPECT_NE(after.high, before.high) << num_bytes << " bytes, at " << at;
  }
}

/// Of contents of all lengths, short ones too.
TEST(Digest, TheSecretChangesIt) {
  std::string first = random_text(Hasher::kSecretBytes), second = random_text(Hasher::kSecretBytes);
  for (const int64_t num_bytes : {0, 1, 8, 16, 100, 240, 241, 5000}) {
    const std::string text = random_text(num_bytes);
    const auto with = [&](const std::string& secret) {
      return Hasher(bytes_of(secret)).add(bytes_of(text)).digest();
    };
    EXPECT_EQ(with(first), with(first));
    EXPECT_NE(with(first), with(second)) << num_bytes << " bytes";
    EXPECT_NE(with(first), digest_of(text)) << num_bytes << " bytes";
  }
  second.pop_back();
  testing::expect_invalid({"a secret has 191 bytes, expected 192"},
                          [&] { Hasher hasher(bytes_of(second)); });
}

TEST(Digest, TheSecretOfAProcessIsDrawnOnce) {
  const auto secret = process_secret();
  ASSERT_EQ(secret.size(), Hasher::kSecretBytes);
  EXPECT_EQ(process_secret().data(), secret.data());
  // 192 random bytes have 135 different values, give or take 6.
  EXPECT_GT(std::set<std::byte>(secret.begin(), secret.end()).size(), 80u);
}

TEST(Digest, TextsDoNotRunTogether) {
  const auto of_texts = [](std::initializer_list<std::string_view> texts) {
    Hasher hasher;
    for (const std::string_view text : texts) hasher.add(text);
    return hasher.digest();
  };
  std::vector<Digest> all = {of_texts({"ab", "c"}), of_texts({"a", "bc"}), of_texts({"abc"}),
                             of_texts({"", "abc"}), of_texts({"abc", ""}), of_texts({""}),
                             of_texts({"", ""}),    of_texts({}),          digest_of("abc")};
  std::ranges::sort(all, is_less);
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end());
  EXPECT_EQ(Hasher().add("abc").digest(), Hasher().add(std::string("abc")).digest());
}

TEST(Digest, ValuesCountByTheirBytes) {
  const auto digest = [](const auto& value) { return Hasher().add(value).digest(); };
  EXPECT_EQ(digest(uint32_t{0x64636261}), digest_of("abcd"));
  EXPECT_EQ(digest(1.0f), digest(uint32_t{0x3f800000}));
  EXPECT_NE(digest(0.0f), digest(-0.0f));
  EXPECT_NE(digest(1.0), digest(1.0f));
  EXPECT_NE(digest(true), digest(false));
  EXPECT_NE(digest(int32_t{7}), digest(int64_t{7}));
  const std::vector<std::byte> bytes(9, std::byte{3});
  EXPECT_EQ(digest(bytes), digest_of("\3\3\3\3\3\3\3\3\3")) << "a list by its elements";

  struct Padded {
    char letter;
    int32_t number;
  };
  static_assert(!HashedByBytes<Padded> && !HashedByBytes<long double>);
  static_assert(!HashedByBytes<const char*> && !HashedByBytes<char[4]>);
  static_assert(!HashedByBytes<std::string_view> && !HashedByBytes<std::span<std::byte>>);
  static_assert(HashedByBytes<Digest>);
}

TEST(Digest, ACopyGoesOnAlone) {
  Hasher hasher;
  hasher.add(bytes_of(random_text(700)));
  const Digest before = hasher.digest();
  Hasher other = hasher;
  other.add(1);
  EXPECT_EQ(hasher.digest(), before);
  EXPECT_NE(other.digest(), before);
  EXPECT_EQ(hasher.add(1).digest(), other.digest());
}

TEST(Digest, HashesForTablesDependOnBytesAndSeed) {
  const std::string text = random_text(testing::random_int(1, 500));
  EXPECT_EQ(hash64(bytes_of(text), 5), hash64(bytes_of(std::string(text)), 5));
  EXPECT_NE(hash64(bytes_of(text), 5), hash64(bytes_of(text), 6));
  EXPECT_NE(hash64(bytes_of(text), 5), hash64(bytes_of(text + '\0'), 5));
}

}  // namespace
}  // namespace heddle
