#include "files/file_stamps.h"

#include <algorithm>
#include <sys/stat.h>
#include <thread>

#include "heddle/core/error.h"

namespace heddle::files {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using Clock = std::chrono::steady_clock;

int64_t last_change(const FileStamps& stamps) {
  int64_t last = 0;
  for (const auto& [name, stamp] : stamps) {
    last = std::max({last, stamp.written_ns, stamp.changed_ns});
  }
  return last;
}

}  // namespace

FileStamps stamps_of(std::span<const std::string> paths) {
  FileStamps stamps;
  for (const std::string& path : paths) {
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0) stamps.push_back({path, FileStamp::of(info)});
  }
  return stamps;
}

int64_t file_time_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<nanoseconds>(now).count();
}

bool are_settled(const FileStamps& stamps, int64_t time) {
  return last_change(stamps) <= time - nanoseconds(kSettled).count();
}

FileStamps wait_until_settled(const std::string& name, milliseconds patience,
                              FunctionRef<FileStamps()> look) {
  const auto begin = Clock::now();
  auto same_since = begin;
  FileStamps stamps = look();
  while (!are_settled(stamps, file_time_now()) && Clock::now() - same_since < kSettled) {
    if (Clock::now() - begin >= patience) {
      throw_error(ErrorCode::kInvalidArgument, name,
                  ": is being written to; load it again when the writer is done");
    }
    const nanoseconds age(file_time_now() - last_change(stamps));
    std::this_thread::sleep_for(std::clamp<nanoseconds>(kSettled - age, milliseconds(1), kSettled));
    FileStamps next = look();
    if (next == stamps) continue;
    stamps = std::move(next);
    same_since = Clock::now();
  }
  return stamps;
}

}  // namespace heddle::files
