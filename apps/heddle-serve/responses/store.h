#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace heddle::serve {

struct StoredResponse {
  std::string owner;     // stands for the access key that the request came with
  std::string response;  // JSON text
  std::string messages;  // a JSON list: the conversation with this answer, without instructions
};

/// Responses that later requests may name, in memory alone. Where one comes that has no room, those
/// that were not used for the longest time go. For any thread.
class ResponseStore {
 public:
  /// 0 entries: it keeps nothing.
  ResponseStore(int64_t max_entries, int64_t max_bytes)
      : max_entries_(max_entries), max_bytes_(max_bytes) {}

  [[nodiscard]] bool is_on() const { return max_entries_ > 0; }
  /// One that is larger than all the room there is is not kept.
  void put(const std::string& id, StoredResponse stored);
  /// The response, where this owner has one of that id, which counts as used; else nullptr.
  [[nodiscard]] std::shared_ptr<const StoredResponse> find(const std::string& id,
                                                           const std::string& owner);
  /// Whether there was one.
  bool erase(const std::string& id, const std::string& owner);

 private:
  struct Entry {
    std::string id;
    std::shared_ptr<const StoredResponse> stored;
    int64_t num_bytes;
  };
  using Place = std::list<Entry>::iterator;

  void drop(Place place);

  const int64_t max_entries_, max_bytes_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // the last used one first
  std::unordered_map<std::string, Place> places_;
  int64_t num_bytes_ = 0;
};

}  // namespace heddle::serve
