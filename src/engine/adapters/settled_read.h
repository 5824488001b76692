#pragma once

#include <chrono>
#include <string>

#include "heddle/core/context.h"

#include "files/file_stamps.h"

namespace heddle {

/// How long a load waits for an adapter whose files are being written.
inline constexpr std::chrono::milliseconds kAdapterPatience{2000};

/// Reads an adapter when its files have not been written to for files::kSettled, and again where
/// they were while it was read: the last read is of one version. Returns its stamps. Throws what
/// `read` throws, and Error where the files are written to on and on.
files::FileStamps read_settled(const std::string& path, FunctionRef<void()> read);

}  // namespace heddle
