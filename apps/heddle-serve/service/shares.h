#pragma once

#include <string>

#include "heddle/engine/request.h"

#include "options.h"

namespace heddle::serve {

/// Whose a key is: what logs, metrics and the page have in place of it.
struct KeyHolder {
  std::string name;
  double weight = 1;  // with --fairness key: its share
};

/// The adapter of a request, in logs and metrics: of a list "sql+cron", of the model without one
/// "base".
[[nodiscard]] std::string adapter_of(const Request& request);

/// Throws Error where --fairness has nothing to share by, and where a weight has no effect.
void check_shares(const app::ServeOptions& options);

/// Says whose share of the engine the rows of a request take, whose adapters are resolved. holder:
/// of the request's key; null: it has none.
void set_share(const app::ServeOptions& options, const KeyHolder* holder, Request& request);

/// Who that is: the holder of its key, or its first adapter; empty: there are no shares.
[[nodiscard]] std::string tenant_of(const app::ServeOptions& options, const Request& request);

}  // namespace heddle::serve
