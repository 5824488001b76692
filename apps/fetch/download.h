#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "fetch/source.h"

namespace heddle::fetch {

/// Told how many bytes have come of a file, or of all files.
using OnProgress = std::function<void(int64_t)>;

/// The listing of a repository; asks again where the source is not there at once.
[[nodiscard]] RemoteListing list_files(const Source& source, const std::string& id,
                                       const std::string& revision, const std::stop_token& stop);

/// Brings a file to `place` by way of `partial`, both in one file system: size and hash are those
/// of the listing, or it is not there. Goes on where an earlier call or another process was cut
/// off, and asks again after a failure, as long as bytes come. A file of the size at the place is
/// left as it is.
void download(const Source& source, const RemoteListing& listing, const RemoteFile& file,
              const std::string& partial, const std::string& place, const std::stop_token& stop,
              const OnProgress& on_progress = {});

}  // namespace heddle::fetch
