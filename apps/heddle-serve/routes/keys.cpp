#include "routes/keys.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "heddle/core/error.h"

namespace heddle::serve {
namespace {

constexpr size_t kLongestName = 32;  // shorter than most keys: one in the wrong place is no name
constexpr double kLeastWeight = 1e-3, kMostWeight = 1e3;

std::array<unsigned char, SHA256_DIGEST_LENGTH> digest_of(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

std::vector<std::string_view> words_of(std::string_view line) {
  constexpr const char* kSpaces = " \t\r";
  std::vector<std::string_view> words;
  for (size_t begin = line.find_first_not_of(kSpaces); begin != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(kSpaces, begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(kSpaces, end);
  }
  return words;
}

bool is_name(std::string_view word) {
  return word.size() <= kLongestName && std::ranges::all_of(word, [](char c) {
           const char lower = static_cast<char>(c | 0x20);
           return (c >= '0' && c <= '9') || (lower >= 'a' && lower <= 'z') || c == '.' ||
                  c == '_' || c == '-';
         });
}

std::optional<double> weight_of(std::string_view word) {
  double weight = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), weight);
  const bool is_number = error == std::errc() && end == word.data() + word.size();
  const bool is_in_range = weight >= kLeastWeight && weight <= kMostWeight;  // false for NaN
  return is_number && is_in_range ? std::optional(weight) : std::nullopt;
}

}  // namespace

KeyFile::KeyFile(const std::string& path, const char* option, const std::string& unnamed) {
  if (path.empty()) return;
  std::ifstream file(path);
  HEDDLE_CHECK(file, option, " ", path, ": cannot be read");
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const std::vector<std::string_view> words = words_of(line);
    if (words.empty()) continue;
    const std::string where = std::string(option) + " " + path + ": line " + std::to_string(number);
    HEDDLE_CHECK(words.size() <= 3, where, " has ", words.size(),
                 " words, expected KEY, NAME KEY or NAME KEY WEIGHT");
    const bool is_named = words.size() > 1;
    HEDDLE_CHECK(!is_named || is_name(words[0]), where,
                 ": its name, the first word, has other "
                 "characters than letters, digits, '.', '_' and '-', or more than ",
                 kLongestName);
    const std::optional<double> weight = words.size() == 3 ? weight_of(words[2]) : 1;
    HEDDLE_CHECK(weight, where, ": its weight, the third word, is no number from ", kLeastWeight,
                 " to ", kMostWeight);
    Key key{.digest = digest_of(words[is_named ? 1 : 0]),
            .holder = {.name = is_named ? std::string(words[0]) : unnamed + std::to_string(number),
                       .weight = *weight},
            .line = number,
            .is_named = is_named};
    const std::string reason = refusal(key);
    HEDDLE_CHECK(reason.empty(), where, ": ", reason);
    keys_.push_back(std::move(key));
  }
  HEDDLE_CHECK(!keys_.empty(), option, " ", path, ": holds no key");
}

/// Why there is no place for the key next to the others; empty: there is.
std::string KeyFile::refusal(const Key& added) const {
  for (const Key& each : keys_) {
    const std::string line = "line " + std::to_string(each.line);
    if (each.digest == added.digest && (each.is_named || added.is_named)) {
      return "its key is that of " + line;
    }
    if (each.holder.name != added.holder.name) continue;
    if (!each.is_named || !added.is_named) {
      return "its name is that of the key without a name in " + line;
    }
    if (each.holder.weight != added.holder.weight) {
      return "its name has another weight in " + line;
    }
  }
  return {};
}

std::vector<std::string> KeyFile::names() const {
  std::vector<std::string> names;
  for (const Key& each : keys_) names.push_back(each.holder.name);
  std::ranges::sort(names);
  const auto rest = std::ranges::unique(names);
  names.erase(rest.begin(), rest.end());
  return names;
}

const KeyHolder* KeyFile::find(std::string_view key) const {
  const Digest given = digest_of(key);
  const KeyHolder* found = nullptr;
  for (const Key& each : keys_) {
    const bool is_key = CRYPTO_memcmp(given.data(), each.digest.data(), given.size()) == 0;
    found = is_key && found == nullptr ? &each.holder : found;
  }
  return found;
}

}  // namespace heddle::serve
