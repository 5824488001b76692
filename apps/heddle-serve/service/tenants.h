#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "heddle/engine/request.h"

namespace heddle::serve {

/// What one of those that share the engine has asked for and was served.
struct TenantUse {
  double weight = 1;
  int64_t num_waiting = 0, num_running = 0;  // rows
  int64_t prompt_tokens = 0, answer_tokens = 0;
};

/// Those that share the engine, as metrics and the page show them. All beyond the first kMostShown
/// are shown together, as "other"; how many rows each has waiting is exact for all.
class Tenants {
 public:
  static constexpr size_t kMostShown = 200;

  void add_waiting(const std::string& name, double weight) {
    if (shown_.size() < kMostShown) {
      shown_.try_emplace(name);
    } else if (!shown_.contains(name)) {
      shown_.try_emplace(kOthers);
    }
    ++waiting_[name];
    TenantUse& use = use_of(name);
    use.weight = weight;
    ++use.num_waiting;
  }

  // Of one that has or had rows waiting. These allocate nothing.

  void begin(const std::string& name) noexcept {
    remove_waiting(name);
    ++use_of(name).num_running;
  }
  void end(const std::string& name, bool has_begun) noexcept {
    if (has_begun) {
      --use_of(name).num_running;
    } else {
      remove_waiting(name);
    }
  }
  void count_tokens(const std::string& name, const Completion& answer) noexcept {
    TenantUse& use = use_of(name);
    use.prompt_tokens += answer.prompt_tokens;
    use.answer_tokens += static_cast<int64_t>(answer.token_ids.size());
  }

  /// Rows of this one without a token.
  [[nodiscard]] int64_t num_waiting(const std::string& name) const {
    const auto place = waiting_.find(name);
    return place == waiting_.end() ? 0 : place->second;
  }
  using Shown = std::map<std::string, TenantUse, std::less<>>;
  [[nodiscard]] const Shown& shown() const { return shown_; }

 private:
  static constexpr const char* kOthers = "other";

  TenantUse& use_of(const std::string& name) noexcept {
    const auto place = shown_.find(name);
    return place == shown_.end() ? shown_.find(kOthers)->second : place->second;
  }
  void remove_waiting(const std::string& name) noexcept {
    --use_of(name).num_waiting;
    const auto place = waiting_.find(name);
    if (--place->second == 0) waiting_.erase(place);
  }

  Shown shown_;
  std::map<std::string, int64_t> waiting_;
};

}  // namespace heddle::serve
