#pragma once

#include <chrono>
#include <string>

#include "heddle/core/context.h"

#include "files/file_stamps.h"

namespace heddle {

/// How long a load waits for an adapter whose files are being written.
inline constexpr std::chrono::milliseconds kAdapterPatience{2000};

/// Reads an adapter when nobody has written to its files for files::kSettled, and again where
/// somebody has while it was read: what comes of the last time is of one version. Returns its
/// stamps. Throws what `read` throws, and Error where the files are written to on and on.
files::FileStamps read_settled(const std::string& path, FunctionRef<void()> read);

}  // namespace heddle
