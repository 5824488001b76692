#include "pull/pull.h"

#include <iostream>
#include <unistd.h>

#include <spdlog/spdlog.h>

#include "fetch/fetch_error.h"
#include "fetch/hub.h"
#include "fetch/hub_store.h"
#include "load_progress.h"

namespace heddle::app {
namespace {

constexpr int kExitFailed = 1;

/// Not the input is wrong: it may go well another time, or elsewhere.
bool is_failure(fetch::FetchFault fault) {
  using enum fetch::FetchFault;
  return fault == kUnavailable || fault == kWrong || fault == kFull;
}

fetch::Pulled pull_with_progress(const PullOptions& options) {
  const fetch::PullRequest request{
      .id = options.id,
      .revision = options.revision,
      .kind = options.is_adapter ? fetch::RepositoryKind::kAdapter : fetch::RepositoryKind::kModel,
      .gguf = options.file};
  const bool shows = !options.quiet && ::isatty(STDERR_FILENO) != 0;
  LoadLine line("fetching");
  const auto show = [&](int64_t done, int64_t total) {
    if (shows) line.update(done, total);
  };
  return fetch::pull(fetch::Hub(fetch::hub_of_user()), request, {}, show);
}

}  // namespace

int pull(const PullOptions& options) {
  try {
    const fetch::Pulled pulled = pull_with_progress(options);
    if (!options.quiet) {
      spdlog::info("{} at commit {}: {} files, {:.1f} MB, checked", options.id, pulled.version,
                   pulled.num_files, 1e-6 * static_cast<double>(pulled.num_bytes));
    }
    std::cout << pulled.path << std::endl;
    return 0;
  } catch (const fetch::FetchError& error) {
    if (!is_failure(error.fault())) throw;
    spdlog::error("{}", error.what());
    return kExitFailed;
  }
}

}  // namespace heddle::app
