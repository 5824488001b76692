#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heddle/core/context.h"

#include "files/open_file.h"

namespace heddle::files {

/// The files of a set and when each changed last.
struct NamedStamp {
  std::string name;
  FileStamp stamp;
  bool operator==(const NamedStamp&) const = default;
};
using FileStamps = std::vector<NamedStamp>;

/// How long a file must be unwritten before it is read: a writer in pieces leaves
/// its time of change as young as the last piece, and the times of a file system go in steps.
inline constexpr std::chrono::milliseconds kSettled{100};

/// Of the files that exist, links followed.
[[nodiscard]] FileStamps stamps_of(std::span<const std::string> paths);
/// Nanoseconds since 1970, as the times of files count.
[[nodiscard]] int64_t file_time_now();
/// Whether every file changed last kSettled before `time` or earlier.
[[nodiscard]] bool are_settled(const FileStamps& stamps, int64_t time);

/// Waits until what look() gives is settled, or, where a clock runs ahead, has been the same for
/// kSettled; returns it. Error that begins with `name` where that takes longer than `patience`.
[[nodiscard]] FileStamps wait_until_settled(const std::string& name,
                                            std::chrono::milliseconds patience,
                                            FunctionRef<FileStamps()> look);

}  // namespace heddle::files
