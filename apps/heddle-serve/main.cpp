// The program heddle-serve, which `heddle serve` and `heddle run-batch` run.
#include <exception>
#include <string>
#include <system_error>

#include <CLI/CLI.hpp>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "heddle/config.h"
#include "heddle/core/error.h"

#include "batch/run_batch.h"
#include "command_line.h"
#include "config/config_file.h"
#include "help/help_commands.h"
#include "log_pattern.h"
#include "routes/log_line.h"
#include "server.h"
#include "service/conversation.h"
#include "service/shares.h"

namespace heddle::serve {
namespace {

constexpr int kExitWrongInput = 2;

int run(int argc, char** argv) {
  CLI::App app("heddle " + std::string(kVersion));
  app::CommandLine line;
  app::declare_commands(app, line);
  const Configured given = with_config_file({argv + 1, argv + argc}, *app.get_subcommand("serve"));
  try {
    app.parse(app::in_parsing_order(given.arguments));
  } catch (const CLI::CallForHelp&) {
    app::print_help(app);
    return 0;
  } catch (const CLI::CallForVersion& request) {
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    throw_error(ErrorCode::kInvalidArgument, given.with_place(error.what()),
                " (see heddle serve --help)");
  } catch (const Error& error) {
    throw_error(error.code(), given.with_place(error.what()));
  }
  if (app.got_subcommand("run-batch")) {
    check_parsers(line.batch.serve);
    app::complete_fetch(line.batch.serve);
    return run_batch(line.batch);
  }
  HEDDLE_CHECK(app.got_subcommand("serve"), "heddle-serve is run by heddle serve and run-batch");
  check_parsers(line.serve);
  check_shares(line.serve);
  app::complete_fetch(line.serve);
  start_log(line.serve.log_json);
  return Server(line.serve).run();
}

}  // namespace
}  // namespace heddle::serve

int main(int argc, char** argv) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("heddle"));
  heddle::app::set_log_pattern("heddle: %*");
  try {
    return heddle::serve::run(argc, argv);
  } catch (const std::system_error& error) {
    spdlog::error("{}", error.what());
    return heddle::serve::kExitFailed;
  } catch (const std::exception& error) {
    spdlog::error("{}", error.what());
  }
  return heddle::serve::kExitWrongInput;
}
