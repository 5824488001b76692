// What the key of a request may do: --limits.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

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

/// Of each entry of each_adapter its own, in the order of the prompts; else the one of all prompts.
std::vector<const ModelChoice*> choices_of(const Generation& generation) {
  if (generation.each.empty()) return {&generation.choice};
  std::vector<const ModelChoice*> choices;
  for (const EachAdapter& each : generation.each) choices.push_back(&each.choice);
  return choices;
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

/// Those that were fetched have passed by the names that the request has for them.
void Routes::check_adapters(const std::string& key, const ModelChoice& choice,
                            const Request& request) const {
  if (choice.fetched.empty() && request.adapters.empty()) {
    check_adapter(key, request.adapter.empty() ? app::kBaseName : request.adapter);
  }
  for (const AdapterWeight& each : request.adapters) {
    const bool is_fetched = std::ranges::any_of(
        choice.fetched, [&each](const auto& one) { return one.second->name == each.name; });
    if (!is_fetched) check_adapter(key, each.name);
  }
}

int64_t Routes::priority_of(const std::string& key, const Generation& generation) const {
  const std::optional<int64_t> best = limits_.priority(key);
  const int64_t priority = generation.priority.value_or(std::max<int64_t>(best.value_or(0), 0));
  if (!best || priority >= *best) return priority;
  throw ApiError(403, "PermissionDeniedError",
                 "this key may not have priority " + std::to_string(priority) + ", but " +
                     std::to_string(*best) + " or more (--limits)",
                 "priority");
}

net::awaitable<void> Routes::admit(const HttpRequest& http, Generation& generation,
                                   Responder& responder, RequestLog& log) {
  const auto choices = choices_of(generation);
  for (const ModelChoice* choice : choices) {
    for (const std::string& name : names_in(*choice)) {  // before anything is fetched
      if (!service_.names().knows(name)) check_adapter(log.key, name);
    }
  }
  const int64_t priority = priority_of(log.key, generation);
  co_await resolve(http, generation, log);
  for (size_t i = 0; i < choices.size(); ++i) {
    check_adapters(log.key, *choices[i], generation.prompts[i]);
  }
  for (Request& request : generation.prompts) request.priority = priority;
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
