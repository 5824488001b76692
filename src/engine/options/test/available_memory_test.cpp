#include "engine/options/available_memory.h"

#include <gtest/gtest.h>

#include "temp_folder.h"

namespace heddle {
namespace {

/// A folder with the system's files of a machine that has 1000 KiB left.
class System {
 public:
  System() {
    write("proc/meminfo", "MemTotal: 4000 kB\nMemAvailable:    1000 kB\nBuffers: 7 kB\n");
  }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((folder_.path() / path).parent_path());
    folder_.write(path, text);
  }
  [[nodiscard]] int64_t available() const { return available_memory(folder_.path()); }

 private:
  testing::TempFolder folder_;
};

TEST(AvailableMemory, IsWhatTheMachineHasLeft) { EXPECT_EQ(System().available(), 1000 << 10); }

TEST(AvailableMemory, IsWhatTheGroupsOfVersion2Leave) {
  System system;
  system.write("proc/self/cgroup", "0::/outer/inner\n");
  system.write("sys/fs/cgroup/outer/memory.max", "500000\n");
  system.write("sys/fs/cgroup/outer/memory.current", "200000\n");
  system.write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  system.write("sys/fs/cgroup/outer/inner/memory.current", "9000\n");
  EXPECT_EQ(system.available(), 300000);
  system.write("sys/fs/cgroup/outer/memory.stat", "anon 5\ninactive_file 50000\nfile 60000\n");
  EXPECT_EQ(system.available(), 350000) << "files can be forgotten";
  system.write("sys/fs/cgroup/outer/inner/memory.max", "10000\n");
  EXPECT_EQ(system.available(), 1000);
  system.write("sys/fs/cgroup/outer/inner/memory.current", "20000\n");
  EXPECT_EQ(system.available(), 0);
}

TEST(AvailableMemory, IsWhatTheGroupsOfVersion1Leave) {
  System system;
  system.write("proc/self/cgroup", "8:pids:/\n4:cpu,memory:/of the machine\n0::/\n");
  // In a container the group's folder is the mount itself.
  system.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "400000\n");
  system.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n");
  system.write("sys/fs/cgroup/memory/memory.stat", "cache 9\ntotal_inactive_file 10000\n");
  EXPECT_EQ(system.available(), 310000);
  system.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // no limit
  EXPECT_EQ(system.available(), 1000 << 10);
}

TEST(AvailableMemory, OfThisMachineIsSome) { EXPECT_GT(available_memory(), 0); }

}  // namespace
}  // namespace heddle
