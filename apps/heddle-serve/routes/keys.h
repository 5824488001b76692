#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "service/shares.h"

namespace heddle::serve {

/// A file of keys, one a line: KEY, NAME KEY or NAME KEY WEIGHT, with spaces or tabs between them.
/// A name is up to 32 letters, digits, '.', '_' or '-'; several keys may have one, and the same
/// weight then, 0.001 to 1000. A key without a name is named by its line: "key-3". Empty lines
/// count, and hold no key.
class KeyFile {
 public:
  /// No file at an empty path: no keys. `unnamed` goes before the line in names. Throws Error, with
  /// the line and nothing that is in it, where one is neither, and where there is no key.
  KeyFile(const std::string& path, const char* option, const std::string& unnamed);

  [[nodiscard]] bool is_empty() const { return keys_.empty(); }
  /// The names of the holders, each once.
  [[nodiscard]] std::vector<std::string> names() const;
  /// Null: it is none of the file's. In a time that does not depend on the keys.
  [[nodiscard]] const KeyHolder* find(std::string_view key) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  struct Key {
    Digest digest;  // of SHA-256
    KeyHolder holder;
    int line;
    bool is_named;
  };

  [[nodiscard]] std::string refusal(const Key& added) const;

  std::vector<Key> keys_;
};

}  // namespace heddle::serve
