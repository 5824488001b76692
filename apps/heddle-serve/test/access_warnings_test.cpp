#include "access_warnings.h"

#include <sys/stat.h>

#include <gtest/gtest.h>

#include "temp_folder.h"

namespace heddle::serve {
namespace {

std::string first_of(const app::ServeOptions& options) {
  const std::vector<std::string> warnings = access_warnings(options);
  return warnings.empty() ? "" : warnings.front();
}

TEST(AccessWarnings, NameAddressesThatOthersReachWithoutKeys) {
  const testing::TempFolder folder;
  const std::string key = folder.write("key", "k\n");
  ::chmod(key.c_str(), 0600);
  app::ServeOptions options;
  for (const char* host : {"127.0.0.1", "127.3.2.1", "::1", "localhost"}) {
    options.host = host;
    EXPECT_EQ(first_of(options), "") << host;
  }
  for (const char* host : {"0.0.0.0", "::", "192.168.1.2", "example.org"}) {
    options.host = host;
    options.api_key_file.clear();
    EXPECT_NE(first_of(options).find(std::string("anyone who can reach ") + host),
              std::string::npos)
        << first_of(options);
    options.api_key_file = key;
    EXPECT_EQ(first_of(options), "") << host;
  }
}

TEST(AccessWarnings, NameFilesOfKeysThatOthersMayRead) {
  const testing::TempFolder folder;
  const std::string key = folder.write("key", "k\n");
  for (std::string app::ServeOptions::*file :
       {&app::ServeOptions::api_key_file, &app::ServeOptions::admin_key_file,
        &app::ServeOptions::tls_key}) {
    app::ServeOptions options;
    options.*file = key;
    for (const auto& [mode, warns] :
         {std::pair(0600, false), {0400, false}, {0640, true}, {0604, true}, {0660, true}}) {
      ::chmod(key.c_str(), static_cast<mode_t>(mode));
      const bool is_said = first_of(options).find("chmod 600 " + key) != std::string::npos;
      EXPECT_EQ(is_said, warns) << mode;
    }
  }
}

}  // namespace
}  // namespace heddle::serve
