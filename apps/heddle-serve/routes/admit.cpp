// What the key of a request may do: --limits.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "limits/key_use.h"
#include "request_json/shown.h"
#include "routes/routes.h"

namespace heddle::serve {
namespace {

namespace net = boost::asio;

/// "sql@7" as "sql".
std::string without_version(const std::string& name) {
  const size_t at = name.rfind('@');
  const bool is_version = at != std::string::npos && at + 1 < name.size() &&
                          name.find_first_not_of("0123456789", at + 1) == std::string::npos;
  return is_version ? name.substr(0, at) : name;
}

void set_quota(Responder& responder, const std::string& what,
               const std::optional<RateLimits::Left>& left) {
  if (!left) return;
  responder.set_header("x-ratelimit-limit-" + what, std::to_string(left->limit));
  responder.set_header("x-ratelimit-remaining-" + what, std::to_string(left->num_left));
  responder.set_header("x-ratelimit-reset-" + what, duration_text(left->reset));
}

}  // namespace

void Routes::check_adapter(const std::string& key, const std::string& name) const {
  const bool is_whole = service_.names().adapters().contains(name);
  if (limits_.allows(key, is_whole ? name : without_version(name))) return;
  throw ApiError(403, "PermissionDeniedError",
                 "this key may not use " + app::quote(name) + " (--limits)", "model");
}

net::awaitable<void> Routes::admit(const HttpRequest& http, Generation& generation,
                                   Responder& responder, RequestLog& log) {
  const ModelChoice& choice = generation.choice;
  for (const std::string& name : names_in(choice)) {  // before anything is fetched
    if (!service_.names().knows(name)) check_adapter(log.key, name);
  }
  co_await resolve(http, generation, log);
  const Request& first = generation.prompts.front();
  if (choice.fetched.empty() && first.adapters.empty()) {
    check_adapter(log.key, first.adapter.empty() ? app::kBaseName : first.adapter);
  }
  for (const AdapterWeight& each : first.adapters) {
    const bool is_fetched = std::ranges::any_of(
        choice.fetched, [&each](const auto& one) { return one.second->name == each.name; });
    if (!is_fetched) check_adapter(log.key, each.name);
  }
  const auto now = std::chrono::steady_clock::now();
  const int64_t num_rows = std::ssize(generation.prompts) * generation.best_of;
  const auto refusal = limits_.admit(log.key, num_rows, now);
  const RateLimits::Quotas quotas = limits_.quotas(log.key, now);
  set_quota(responder, "requests", quotas.requests);
  set_quota(responder, "tokens", quotas.tokens);
  if (refusal && refusal->retry_after.count() > 0) {
    throw overloaded(refusal->reason,
                     static_cast<int64_t>(std::ceil(refusal->retry_after.count())));
  }
  if (refusal) throw bad_request(refusal->reason);
  // Shared: forms keep copies of the generation.
  generation.use = std::make_shared<KeyUse>(limits_, log.key, num_rows);
}

}  // namespace heddle::serve
