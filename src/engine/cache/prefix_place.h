#pragma once

#include <cstdint>

namespace heddle {

/// Where a sequence is in the prefix cache: its first pages are those of a chain of entries.
struct PrefixPlace {
  int32_t entry = -1;     // of the last of these pages; -1: there is none
  int64_t num_pages = 0;  // of the chain
  int32_t claim = -1;     // of the last page that the sequence has claimed; -1: none
  uint64_t age = 0;       // of the cache: entries of another age are gone
};

}  // namespace heddle
