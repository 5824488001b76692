#include "limits/rate_limits.h"

#include <algorithm>
#include <cmath>
#include <fnmatch.h>

namespace heddle::serve {
namespace {

constexpr double kMinute = 60;      // seconds
constexpr double kRounding = 1e-6;  // of sums of fractions, which none shall wait longer for

/// "this key has used its 60 requests a minute (--limits); try again in 2s"
std::string used_up(int64_t per_minute, const char* what, RateLimits::Seconds retry_after) {
  return "this key has used its " + std::to_string(per_minute) + " " + what +
         " a minute (--limits); try again in " + duration_text(retry_after);
}

}  // namespace

double MinuteQuota::left(Time now) const {
  const auto full = static_cast<double>(per_minute_);
  const double passed = std::max(Seconds(now - since_).count(), 0.0);
  return std::min(full, left_ + passed * full / kMinute);
}

void MinuteQuota::take(int64_t count, Time now) {
  left_ = left(now) - static_cast<double>(count);
  since_ = std::max(since_, now);
}

int64_t MinuteQuota::num_left(Time now) const {
  return std::max<int64_t>(static_cast<int64_t>(std::floor(left(now) + kRounding)), 0);
}

MinuteQuota::Seconds MinuteQuota::time_until(int64_t count, Time now) const {
  const double missing = static_cast<double>(count) - left(now);
  return Seconds(std::max(missing, 0.0) * kMinute / static_cast<double>(per_minute_));
}

RateLimits::RateLimits(const std::map<std::string, KeyLimit>& limits) {
  for (const auto& [name, limit] : limits) {
    Use& use = uses_[name];
    if (limit.requests_per_minute) use.requests.emplace(*limit.requests_per_minute);
    if (limit.tokens_per_minute) use.tokens.emplace(*limit.tokens_per_minute);
    use.max_rows = limit.max_rows;
    use.adapters = limit.adapters;
    use.priority = limit.priority;
  }
}

std::optional<RateLimits::Refusal> RateLimits::admit(const std::string& name, int64_t num_rows,
                                                     Time now) {
  const auto place = uses_.find(name);
  if (place == uses_.end()) return std::nullopt;
  Use& use = place->second;
  if (use.max_rows && num_rows > *use.max_rows) {
    return Refusal{"the request asks for " + std::to_string(num_rows) + " answers, this key may " +
                   "have " + std::to_string(*use.max_rows) + " at once (--limits)"};
  }
  if (use.max_rows && use.num_rows + num_rows > *use.max_rows) {
    return Refusal{"this key has " + std::to_string(use.num_rows) + " of " +
                       std::to_string(*use.max_rows) +
                       " answers that it may have at once (--limits); try again later",
                   Seconds(1)};
  }
  if (use.requests && use.requests->num_left(now) < 1) {
    const Seconds retry_after = use.requests->time_until(1, now);
    return Refusal{used_up(use.requests->per_minute(), "requests", retry_after), retry_after};
  }
  if (use.tokens && use.tokens->num_left(now) < 1) {
    const Seconds retry_after = use.tokens->time_until(1, now);
    return Refusal{used_up(use.tokens->per_minute(), "tokens", retry_after), retry_after};
  }
  if (use.requests) use.requests->take(1, now);
  use.num_rows += num_rows;
  return std::nullopt;
}

void RateLimits::release(const std::string& name, int64_t num_rows) noexcept {
  const auto place = uses_.find(name);
  if (place != uses_.end()) place->second.num_rows -= num_rows;
}

void RateLimits::charge(const std::string& name, int64_t num_tokens, Time now) noexcept {
  const auto place = uses_.find(name);
  if (place != uses_.end() && place->second.tokens) place->second.tokens->take(num_tokens, now);
}

bool RateLimits::allows(const std::string& name, const std::string& adapter) const {
  const auto place = uses_.find(name);
  if (place == uses_.end() || !place->second.adapters) return true;
  return std::ranges::any_of(*place->second.adapters, [&adapter](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), adapter.c_str(), 0) == 0;
  });
}

std::optional<int64_t> RateLimits::priority(const std::string& name) const {
  const auto place = uses_.find(name);
  return place == uses_.end() ? std::nullopt : place->second.priority;
}

RateLimits::Left RateLimits::left_of(const MinuteQuota& quota, Time now) {
  return {.limit = quota.per_minute(),
          .num_left = quota.num_left(now),
          .reset = quota.time_until(quota.per_minute(), now)};
}

RateLimits::Quotas RateLimits::quotas(const std::string& name, Time now) const {
  Quotas quotas;
  const auto place = uses_.find(name);
  if (place == uses_.end()) return quotas;
  if (place->second.requests) quotas.requests = left_of(*place->second.requests, now);
  if (place->second.tokens) quotas.tokens = left_of(*place->second.tokens, now);
  return quotas;
}

std::string duration_text(RateLimits::Seconds time) {
  if (time.count() < 1) {
    return std::to_string(static_cast<int64_t>(std::ceil(time.count() * 1e3))) + "ms";
  }
  const auto seconds = static_cast<int64_t>(std::ceil(time.count()));
  const int64_t minutes = seconds / 60;
  return (minutes > 0 ? std::to_string(minutes) + "m" : "") + std::to_string(seconds % 60) + "s";
}

}  // namespace heddle::serve
