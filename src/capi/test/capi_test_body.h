#pragma once

#include <string_view>

#include <gtest/gtest.h>

#include "heddle/c_api.h"

namespace heddle::testing {

inline void expect_ok(heddle_status status) { EXPECT_EQ(status, HEDDLE_OK) << heddle_last_error(); }

/// Expects a call that failed with `status`, and a message that begins with `message`.
inline void expect_failure(heddle_status status, std::string_view message, heddle_status got) {
  EXPECT_EQ(got, status) << heddle_last_error();
  EXPECT_EQ(std::string_view(heddle_last_error()).substr(0, message.size()), message);
}

/// A context while it lives.
class Context {
 public:
  explicit Context(const heddle_context_options& options) {
    expect_ok(heddle_context_create(&context_, &options));
  }
  /// On the CPU.
  explicit Context(int num_threads, size_t workspace_bytes = size_t{1} << 20)
      : Context(heddle_context_options{{kDLCPU, 0}, nullptr, workspace_bytes, num_threads}) {}
  ~Context() { heddle_context_destroy(context_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  operator heddle_context*() const { return context_; }  // NOLINT(google-explicit-constructor)

 private:
  heddle_context* context_ = nullptr;
};

}  // namespace heddle::testing
