#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace heddle::serve {

/// What the holder of a key may do; what is not given has no limit.
struct KeyLimit {
  std::optional<int64_t> requests_per_minute{}, tokens_per_minute{};
  std::optional<int64_t> max_rows{};                   // answers that are not finished
  std::optional<std::vector<std::string>> adapters{};  // names and patterns such as "acme/*"
  std::optional<int64_t> priority{};                   // the lowest that it may ask for
};

/// A number that refills at a steady rate up to what a minute brings, and is full at first. It may
/// be overdrawn: then it is below 0 until the debt is paid.
class MinuteQuota {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Seconds = std::chrono::duration<double>;

  explicit MinuteQuota(int64_t per_minute)
      : per_minute_(per_minute), left_(static_cast<double>(per_minute)) {}

  void take(int64_t count, Time now);
  [[nodiscard]] int64_t per_minute() const { return per_minute_; }
  /// Whole ones, at least 0.
  [[nodiscard]] int64_t num_left(Time now) const;
  /// Until there are so many; 0: there are.
  [[nodiscard]] Seconds time_until(int64_t count, Time now) const;

 private:
  [[nodiscard]] double left(Time now) const;

  int64_t per_minute_;
  double left_;   // at since_
  Time since_{};  // long ago at first, so that it is full
};

/// How much of their limits the holders of keys have used. All functions take the time.
class RateLimits {
 public:
  using Time = MinuteQuota::Time;
  using Seconds = MinuteQuota::Seconds;

  RateLimits() = default;
  /// By the names of the holders; one that is not here has no limit.
  explicit RateLimits(const std::map<std::string, KeyLimit>& limits);

  /// Why a request may not start now, or with `retry_after` 0 never.
  struct Refusal {
    std::string reason;
    Seconds retry_after{};
  };
  /// Counts a request of so many rows, which `release` gives back; where it is refused nothing is
  /// counted.
  [[nodiscard]] std::optional<Refusal> admit(const std::string& name, int64_t num_rows, Time now);
  void release(const std::string& name, int64_t num_rows) noexcept;
  /// Tokens of prompts and answers were served.
  void charge(const std::string& name, int64_t num_tokens, Time now) noexcept;

  /// Whether the holder may use the adapter, or with "base" the model without one.
  [[nodiscard]] bool allows(const std::string& name, const std::string& adapter) const;

  /// The lowest priority that the holder may ask for; nothing: any.
  [[nodiscard]] std::optional<int64_t> priority(const std::string& name) const;

  /// What is left of a limit of a minute, and when all of it is there again.
  struct Left {
    int64_t limit = 0, num_left = 0;
    Seconds reset{};
  };
  struct Quotas {
    std::optional<Left> requests{}, tokens{};
  };
  [[nodiscard]] Quotas quotas(const std::string& name, Time now) const;

 private:
  struct Use {
    std::optional<MinuteQuota> requests{}, tokens{};
    std::optional<int64_t> max_rows{};
    int64_t num_rows = 0;
    std::optional<std::vector<std::string>> adapters{};
    std::optional<int64_t> priority{};
  };
  [[nodiscard]] static Left left_of(const MinuteQuota& quota, Time now);

  std::map<std::string, Use> uses_;
};

/// "120ms", "12s" or "6m0s", as OpenAI's headers have it, rounded up.
[[nodiscard]] std::string duration_text(RateLimits::Seconds time);

}  // namespace heddle::serve
