#pragma once

#include <string>
#include <utility>

#include "limits/rate_limits.h"

namespace heddle::serve {

/// What a request takes of the limits of its key: its rows while this lives, and its tokens as they
/// are served.
class KeyUse {
 public:
  /// Of a request that `limits` has admitted, and which outlive this.
  KeyUse(RateLimits& limits, std::string name, int64_t num_rows)
      : limits_(limits), name_(std::move(name)), num_rows_(num_rows) {}
  KeyUse(const KeyUse&) = delete;
  KeyUse& operator=(const KeyUse&) = delete;
  ~KeyUse() { limits_.release(name_, num_rows_); }

  void charge(int64_t num_tokens) noexcept {
    limits_.charge(name_, num_tokens, std::chrono::steady_clock::now());
  }

 private:
  RateLimits& limits_;
  std::string name_;
  int64_t num_rows_;
};

}  // namespace heddle::serve
