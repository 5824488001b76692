#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>

#include "fetch/adapter_lease.h"
#include "fetch/source.h"

namespace heddle::fetch {

/// A folder of adapters that were fetched, of bounded size: those that no one holds make room for
/// others, the least recently used first. A program has it for itself. Files lie in
/// DIR/adapters/NAME when they are whole and checked, until then in DIR/incoming/NAME. For any
/// thread.
class AdapterCache {
 public:
  /// Opens or makes the folder. Throws FetchError where another program has it.
  AdapterCache(std::string path, int64_t max_bytes);
  AdapterCache(const AdapterCache&) = delete;
  AdapterCache& operator=(const AdapterCache&) = delete;
  ~AdapterCache();

  /// The folder of the adapters that are whole.
  [[nodiscard]] std::string folder() const { return path_ + "/adapters"; }
  /// Null: it is not there.
  [[nodiscard]] AdapterLease find(const std::string& name);
  /// The adapter of a listing under the name, fetched where it is not there; calls for one name
  /// take turns. Throws FetchError: kFull where there is no room for it next to those that are
  /// held.
  AdapterLease fetch(const Source& source, const RemoteListing& listing, const std::string& name,
                     const std::stop_token& stop);

  /// Notes that an adapter is what a key now means, a branch of a repository, say; a later program
  /// finds it noted, too.
  void note(const std::string& key, const AdapterLease& adapter);
  /// The adapter that was last noted; null: none, or it is not there any more.
  [[nodiscard]] AdapterLease noted(const std::string& key);
  /// The names of the adapters that were noted, by their keys.
  [[nodiscard]] std::map<std::string, std::string> all_noted() const;

  /// Bytes of all files, those to come included.
  [[nodiscard]] int64_t num_bytes() const;

 private:
  class Turn;
  struct Entry {
    std::shared_ptr<CachedAdapter> adapter;
    uint64_t last_use = 0;
  };

  void find_what_is_there();
  AdapterLease find_locked(const std::string& name);
  void write_keys(const std::string& name) const;
  void make_room(int64_t num_bytes, const std::string& name);
  void count_left(const std::string& name);
  [[nodiscard]] bool evict_one();
  AdapterLease keep(const std::string& name, int64_t num_bytes);

  std::string path_;
  int64_t max_bytes_;
  int lock_ = -1;
  mutable std::mutex mutex_;  // of the rest
  std::condition_variable_any turns_;
  std::set<std::string> fetching_;  // names that have a call
  std::map<std::string, Entry> entries_;
  std::map<std::string, int64_t> left_;      // bytes in DIR/incoming that no call is fetching
  std::map<std::string, std::string> keys_;  // names of adapters by the keys that mean them
  int64_t num_bytes_ = 0;
  uint64_t num_uses_ = 0;
};

}  // namespace heddle::fetch
