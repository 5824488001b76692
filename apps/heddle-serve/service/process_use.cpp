#include "service/process_use.h"

#include <dirent.h>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

namespace heddle::serve {
namespace {

/// Seconds since 1970 at which the machine started.
double boot_time() {
  std::ifstream file("/proc/stat");
  std::string name;
  for (double value = 0; file >> name;) {
    if (name == "btime" && file >> value) return value;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

/// proc(5): the fields of /proc/self/stat after the program's name, which may have spaces.
void read_stat(ProcessUse& use) {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return;
  std::istringstream fields(line.substr(name_end + 2));
  constexpr int kState = 3, kUser = 14, kSystem = 15, kStart = 22, kVirtual = 23, kResident = 24;
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  std::string field;
  for (int number = kState; number <= kResident && fields >> field; ++number) {
    if (number == kUser || number == kSystem) use.cpu_seconds += std::stod(field) / ticks;
    if (number == kStart) use.start_time = boot_time() + std::stod(field) / ticks;
    if (number == kVirtual) use.virtual_bytes = std::stoll(field);
    if (number == kResident) use.resident_bytes = std::stoll(field) * ::sysconf(_SC_PAGESIZE);
  }
}

int64_t count_open_files() {
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  int64_t count = 0;
  while (const dirent* entry = ::readdir(folder)) count += entry->d_name[0] != '.' ? 1 : 0;
  ::closedir(folder);
  return count - 1;  // that of the folder
}

}  // namespace

ProcessUse process_use() {
  ProcessUse use;
  read_stat(use);
  use.num_open_files = count_open_files();
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    use.max_open_files = static_cast<int64_t>(limit.rlim_cur);
  }
  return use;
}

}  // namespace heddle::serve
