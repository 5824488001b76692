#include "engine/options/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <unistd.h>

#include "core/device_bytes.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

/// The number that follows `name` in a file of names and numbers; a file of one number has no name.
std::optional<int64_t> read_number(const fs::path& path, const std::string& name = "") {
  std::ifstream file(path);
  for (std::string word; name.empty() || file >> word;) {
    int64_t number = 0;
    if (name.empty() || word == name) {
      return file >> number ? std::optional(number) : std::nullopt;
    }
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

/// How the files of one version of control groups are called.
struct GroupFiles {
  const char *mount, *limit, *usage, *forgettable;
};
constexpr GroupFiles kVersion1 = {"sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                  "memory.usage_in_bytes", "total_inactive_file"};
constexpr GroupFiles kVersion2 = {"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

/// What one group leaves. It has no limit where the file says "max", or is not there.
int64_t left_by(const fs::path& folder, const GroupFiles& files) {
  const std::optional<int64_t> limit = read_number(folder / files.limit);
  const std::optional<int64_t> usage = read_number(folder / files.usage);
  if (!limit || !usage) return kUnlimited;
  const int64_t forgettable = read_number(folder / "memory.stat", files.forgettable).value_or(0);
  return std::max<int64_t>(*limit - *usage, 0) + std::clamp<int64_t>(forgettable, 0, *usage);
}

/// What the group of this path and all above it leave. In a container the path may be that of the
/// machine, of which only the upper end is visible.
int64_t left_by_groups(const fs::path& root, const GroupFiles& files, const std::string& path) {
  const fs::path mount = root / files.mount;
  int64_t left = left_by(mount, files);
  fs::path folder = mount;
  for (const fs::path& part : fs::path(path).relative_path()) {
    folder /= part;
    left = std::min(left, left_by(folder, files));
  }
  return left;
}

/// Lines of /proc/self/cgroup: "0::/path" of version 2, "4:cpu,memory:/path" of version 1.
int64_t left_by_all_groups(const fs::path& root) {
  int64_t left = kUnlimited;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string kinds = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (kinds.empty()) left = std::min(left, left_by_groups(root, kVersion2, path));
    if (kinds.find("memory") != std::string::npos) {
      left = std::min(left, left_by_groups(root, kVersion1, path));
    }
  }
  return left;
}

int64_t left_by_machine(const fs::path& root) {
  if (const auto kib = read_number(root / "proc/meminfo", "MemAvailable:")) return *kib << 10;
  return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
}

}  // namespace

int64_t available_memory(const fs::path& root) {
  return std::min(left_by_machine(root), left_by_all_groups(root));
}

int64_t available_memory(Device device) {
  return device.type == DeviceType::kCpu ? available_memory() : available_bytes(device);
}

}  // namespace heddle
