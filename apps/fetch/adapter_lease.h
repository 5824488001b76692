#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace heddle::fetch {

/// An adapter in the cache. It stays there as long as anyone holds it.
struct CachedAdapter {
  std::string name{};  // of its folder, by which the engine finds it
  int64_t num_bytes = 0;
};
using AdapterLease = std::shared_ptr<const CachedAdapter>;  // shared: by the rows that use it

}  // namespace heddle::fetch
