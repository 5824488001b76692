// The program heddle: its subcommands are declared in command_line.cpp.
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "heddle/config.h"
#include "heddle/core/error.h"
#include "heddle/engine/inspect.h"

#include "chat/chat.h"
#include "command_line.h"
#include "demo/demo.h"
#include "generate/generate.h"
#include "log_pattern.h"
#include "pull/pull.h"

namespace heddle::app {
namespace {

constexpr int kExitFailed = 1, kExitWrongInput = 2;

/// Becomes heddle-serve, which is in the folder of this program: it needs libraries that the rest
/// does not. Returns only by an Error.
[[noreturn]] void run_server_program(char** argv, bool serves) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string program = (self.parent_path() / "heddle-serve").string();
  if (serves) std::signal(SIGHUP, SIG_IGN);  // until the server has its handler
  execv(program.c_str(), argv);
  throw_error(ErrorCode::kInvalidArgument, program, ": ", std::strerror(errno),
              "; build it with `make serve`");
}

int run(int argc, char** argv) {
  CLI::App app("heddle " + std::string(kVersion) +
               ": one language model, many LoRA adapters in a batch");
  CommandLine line;
  declare_commands(app, line);
  try {
    app.parse(in_parsing_order(std::vector<std::string>(argv + 1, argv + argc)));
  } catch (const CLI::CallForHelp&) {
    print_help(app);
    return 0;
  } catch (const CLI::CallForVersion& request) {
    return app.exit(request);
  }
  HEDDLE_CHECK(!app.get_subcommands().empty(), "a command is missing (see heddle --help)");
  if (run_help_command(app, line.help)) return 0;
  if (app.got_subcommand("inspect")) {
    inspect(std::cout, line.inspect.path, line.inspect.base);
    return 0;
  }
  if (app.got_subcommand("demo")) return demo(line.demo, argv[0]);
  if (app.got_subcommand("pull")) return pull(line.pull);
  if (app.got_subcommand("chat")) return chat(line.chat);
  const bool serves = app.got_subcommand("serve");
  if (serves || app.got_subcommand("run-batch")) run_server_program(argv, serves);
  return generate(app.got_subcommand("embed") ? line.embed : line.generate);
}

}  // namespace
}  // namespace heddle::app

int main(int argc, char** argv) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("heddle"));
  heddle::app::set_log_pattern("heddle: %*");
  try {
    return heddle::app::run(argc, argv);
  } catch (const CLI::ParseError& error) {
    spdlog::error("{} (see heddle --help)", error.what());
  } catch (const std::system_error& error) {  // not the input is wrong, but the disk is full, say
    spdlog::error("{}", error.what());
    return heddle::app::kExitFailed;
  } catch (const std::exception& error) {
    spdlog::error("{}", error.what());
  }
  return heddle::app::kExitWrongInput;
}
