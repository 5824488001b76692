// A source in memory that fails as a test wants.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fetch/content_hash.h"
#include "fetch/fetch_error.h"
#include "fetch/source.h"

namespace heddle::fetch {

inline std::string sha256(std::string_view content) {
  ContentHasher hasher({.kind = ContentHash::Kind::kSha256}, std::ssize(content));
  hasher.add(content);
  return hasher.hex();
}

inline RemoteFile file_of(const std::string& name, std::string_view content) {
  return {.name = name,
          .size = std::ssize(content),
          .hash = {ContentHash::Kind::kSha256, sha256(content)}};
}

class MadeSource final : public Source {
 public:
  std::map<std::string, std::string> contents{};
  bool goes_on = true;     // in the middle of a file
  int64_t cut_after = -1;  // bytes of one read; -1: all
  bool fails = false;      // where it is cut, it throws kUnavailable, else it just ends
  mutable std::vector<int64_t> reads{};  // where each began

  RemoteListing list(const std::string& id, const std::string&,
                     const std::stop_token&) const override {
    RemoteListing listing{.id = id, .version = std::string(40, 'a')};
    for (const auto& [name, content] : contents) listing.files.push_back(file_of(name, content));
    return listing;
  }

  void read(const RemoteListing&, const RemoteFile& file, int64_t from, const OnBytes& on_bytes,
            const std::stop_token&) const override {
    reads.push_back(from);
    const std::string& content = contents.at(file.name);
    int64_t at = goes_on ? from : 0;
    const int64_t all = std::ssize(content);
    const int64_t end = cut_after < 0 ? all : std::min(all, at + cut_after);
    constexpr int64_t kPiece = 7;
    for (; at < end; at += kPiece) {
      const auto count = static_cast<size_t>(std::min(kPiece, end - at));
      on_bytes(at, std::string_view(content).substr(static_cast<size_t>(at), count));
    }
    if (all == 0) on_bytes(0, {});
    if (fails && end < all) fail(FetchFault::kUnavailable, file.name, ": cut");
  }
};

}  // namespace heddle::fetch
