#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "fetch/content_hash.h"

namespace heddle::fetch {

/// A file as its source announces it.
struct RemoteFile {
  std::string name{};  // in its repository: "config.json"; of a source, so anything
  int64_t size = 0;
  ContentHash hash{};
};

/// What a repository holds at one version of it.
struct RemoteListing {
  std::string id{};       // of the repository
  std::string version{};  // of the content, which does not change; lower-case hexadecimal digits
  std::vector<RemoteFile> files{};
};

/// Takes bytes of a file, and where in it they begin: the first call says where the source begins,
/// which is at the start where it cannot go on in the middle.
using OnBytes = std::function<void(int64_t, std::string_view)>;

/// Where models and adapters come from. Functions throw FetchError, and are for any thread.
class Source {
 public:
  Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source() = default;

  /// `revision`: empty for the usual one.
  [[nodiscard]] virtual RemoteListing list(const std::string& id, const std::string& revision,
                                           const std::stop_token& stop) const = 0;
  /// Hands on the bytes of a file from `from` to its end, which may be cut off without an error.
  virtual void read(const RemoteListing& listing, const RemoteFile& file, int64_t from,
                    const OnBytes& on_bytes, const std::stop_token& stop) const = 0;
};

}  // namespace heddle::fetch
