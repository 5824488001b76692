#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "config/config_file.h"
#include "config/toml_file.h"
#include "expect_error.h"
#include "temp_folder.h"

namespace heddle::serve {
namespace {

class Config : public ::testing::Test {
 protected:
  Config() {
    command_.add_option("--port");
    command_.add_option("--max-batch");
    command_.add_option("--allowed-host");
    command_.add_flag("--log-json");
    command_.add_option("--config");
  }
  std::string path(const std::string& text) const { return folder_.write("a.toml", text); }
  Configured read(const std::string& text, std::vector<std::string> arguments = {"serve"}) const {
    arguments.push_back("--config=" + path(text));
    return with_config_file(std::move(arguments), command_);
  }
  /// The arguments that the file adds.
  std::vector<std::string> added(const std::string& text) const {
    std::vector<std::string> arguments = read(text).arguments;
    arguments.erase(arguments.begin(), arguments.begin() + 2);
    return arguments;
  }

  CLI::App command_;
  testing::TempFolder folder_;
};

using Arguments = std::vector<std::string>;

TEST_F(Config, BecomesArguments) {
  EXPECT_EQ(
      added("# a comment\nport = 80_80  # and another\nallowed-host = [\"a\", 'b=c',\n \"d\"]\n"
            "log-json = true\n"),
      (Arguments{"--port=8080", "--allowed-host=a", "--allowed-host=b=c", "--allowed-host=d",
                 "--log-json"}));
  EXPECT_EQ(added("log-json = false\n\"max-batch\" = 1.5\n"), (Arguments{"--max-batch=1.5"}));
  EXPECT_EQ(added(""), Arguments());
}

TEST_F(Config, ArgumentsGoBefore) {
  EXPECT_EQ(read("port = 1\nmax-batch = 2\n", {"serve", "--port", "3"}).arguments.back(),
            "--max-batch=2");
  EXPECT_EQ(with_config_file({"serve", "--port=3"}, command_).arguments.size(), 2U);
}

TEST_F(Config, MistakesHaveTheirLine) {
  const std::pair<const char*, const char*> wrong[] = {
      {"port = 1\nprot = 1\n", "line 2: there is no option \"prot\"; did you mean \"port\"?"},
      {"max_batch = 1\n", "line 1: there is no option \"max_batch\"; did you mean \"max-batch\"?"},
      {"\nnonsense = 1\n", "line 2: there is no option \"nonsense\""},
      {"config = \"b.toml\"\n", "line 1: there is no option \"config\""},
      {"port = 1\n\n[serve]\nport = 1\n", "line 3: has a section \"serve\", expected none"},
      {"port = 1\nport = 2\n", "line 2: "},
      {"port 1\n", "line 1: "},
      {"port = 1979-05-27\n", "line 1: \"port\": expected a text, a number"},
      {"port = [[1]]\n", "line 1: \"port\": expected a text, a number"}};
  for (const auto& [text, sentence] : wrong) {
    const std::string message = testing::message_of([&] { (void)read(text); });
    EXPECT_TRUE(message.starts_with("--config ")) << message;
    EXPECT_NE(message.find(sentence), std::string::npos) << message;
  }
  testing::expect_invalid({"--config /nothing: there is no such file"}, [&] {
    (void)with_config_file({"serve", "--config", "/nothing"}, command_);
  });
}

TEST_F(Config, ErrorsOfItsValuesHaveTheirPlace) {
  const Configured configured = read("\nport = 99999\n");
  EXPECT_EQ(
      configured.with_place("--port: Value 99999 not in range 0 to 65535"),
      "--port: Value 99999 not in range 0 to 65535 (" + path("\nport = 99999\n") + ": line 2)");
  EXPECT_EQ(configured.with_place("--ports: x"), "--ports: x");
}

}  // namespace
}  // namespace heddle::serve
