#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>

#include "core/digest.h"
#include "engine/drafts/suffix_memory.h"

namespace heddle {

/// Whose answers a memory has: those of other salts are never proposed.
struct SuffixMemoryKey {
  Digest salt{};
  Digest adapters{};

  friend bool operator==(const SuffixMemoryKey&, const SuffixMemoryKey&) = default;
};

struct SuffixMemoriesOptions {
  size_t max_bytes = size_t{256} << 20;  // of all memories; 0: there are none
  SuffixMemoryOptions each{};
};

/// The memories of recent answers, by adapters and salt.
///
///   memories.add(key, answer);                           // of a row that has ended
///   SuffixMemory* memory = memories.find(key);           // nullptr: nothing is remembered
///   if (memory != nullptr) memory->append(cursor, token);
///
/// Where all memories together have more than max_bytes, the least recently used are forgotten: a
/// pointer is for the step in which it was found. A cursor of a row stays valid (a default-made one
/// begins) and starts anew where its memory was forgotten.
class SuffixMemories {
 public:
  explicit SuffixMemories(const SuffixMemoriesOptions& options = {}) : options_(options) {}

  [[nodiscard]] SuffixMemory* find(const SuffixMemoryKey& key) noexcept;
  /// Where memory runs out, what is known of the key is forgotten.
  void add(const SuffixMemoryKey& key, std::span<const int32_t> answer) noexcept;
  void clear() noexcept;

  [[nodiscard]] size_t num_memories() const { return memories_.size(); }
  /// That are allocated, with some for the keys.
  [[nodiscard]] size_t num_bytes() const { return num_bytes_; }

 private:
  struct Remembered {
    SuffixMemoryKey key;
    SuffixMemory memory;
    size_t num_bytes = 0;
  };
  struct HashKey {
    size_t operator()(const SuffixMemoryKey& key) const noexcept {
      return static_cast<size_t>(key.salt.low ^ key.adapters.high * 0x9E3779B97F4A7C15U ^
                                 key.adapters.low);
    }
  };
  using Place = std::list<Remembered>::iterator;

  [[nodiscard]] Place find_or_make(const SuffixMemoryKey& key);
  void use(Place place) noexcept;
  void forget(Place place) noexcept;

  SuffixMemoriesOptions options_;
  std::list<Remembered> memories_;  // the most recently used first
  std::unordered_map<SuffixMemoryKey, Place, HashKey> by_key_;
  size_t num_bytes_ = 0;
  uint64_t num_made_ = 0;
};

}  // namespace heddle
