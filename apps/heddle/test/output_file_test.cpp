#include "output_file.h"

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "temp_folder.h"

namespace heddle::app {
namespace {

namespace fs = std::filesystem;
using testing::TempFolder;

std::string content(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}
void write(const fs::path& path) { OutputFile("--stats", path.string()).write("{}\n"); }
size_t num_files(const TempFolder& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder.path()), {}));
}

TEST(OutputFile, IsNewOrReplacedAsAWhole) {
  const TempFolder folder;
  const fs::path path = folder.path() / "stats";
  write(path);
  EXPECT_EQ(content(path), "{}\n");
  std::ofstream(path) << "longer than before";
  ::chmod(path.c_str(), 0600);
  folder.write("stats.partial", "another");
  const std::ifstream before(path);  // who reads the old one goes on reading it
  write(path);
  EXPECT_EQ(content(path), "{}\n");
  std::ostringstream old;
  old << before.rdbuf();
  EXPECT_EQ(old.str(), "longer than before");
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(content(folder.path() / "stats.partial"), "another");
  EXPECT_EQ(num_files(folder), 2u);
}

TEST(OutputFile, FollowsLinks) {
  const TempFolder folder;
  fs::create_directory(folder.path() / "there");
  const fs::path link = folder.path() / "link", second = folder.path() / "second";
  fs::create_symlink("there/target", link);
  fs::create_symlink("link", second);
  write(second);  // to a file that is not there yet
  EXPECT_TRUE(fs::is_symlink(link) && fs::is_symlink(second));
  EXPECT_EQ(content(folder.path() / "there/target"), "{}\n");
  folder.write("there/target", "old");
  write(link);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(content(folder.path() / "there/target"), "{}\n");
}

TEST(OutputFile, WritesIntoDevicesAndPipes) {
  const TempFolder folder;
  const fs::path null = folder.path() / "null", pipe = folder.path() / "pipe";
  fs::create_symlink("/dev/null", null);
  write(null);
  EXPECT_TRUE(fs::is_symlink(null) && fs::is_character_file("/dev/null"));
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(write(pipe),
               std::system_error);  // it has no reader, and the program does not wait forever
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  write(pipe);
  char text[8] = {};
  EXPECT_EQ(::read(reader, text, sizeof(text)), 3);
  EXPECT_STREQ(text, "{}\n");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(pipe));
}

TEST(OutputFile, RefusesWhatCannotBeWritten) {
  const TempFolder folder;
  const std::string path = folder.path().string();
  testing::expect_invalid({"--stats ", "is a folder"}, [&] { write(path); });
  testing::expect_invalid({"--stats ", "/none/stats: cannot be written", "No such file"},
                          [&] { write(path + "/none/stats"); });
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = path + "/socket";
  ASSERT_LT(name.size(), sizeof(address.sun_path));
  name.copy(address.sun_path, name.size());
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  testing::expect_invalid({"socket: is a disk or a socket"}, [&] { write(name); });
  ::close(socket);
}

}  // namespace
}  // namespace heddle::app
