// What a template may cost. A template comes out of a downloaded file, so it can be hostile: every
// render ends soon and in bounded memory, whatever the template says.
#pragma once

#include <cstddef>
#include <cstdint>

#include "heddle/core/error.h"

namespace heddle::chat_template {

inline constexpr size_t kMaxTemplateBytes = size_t{1} << 20;
/// Arguments of one call, parameters of one macro.
inline constexpr size_t kMaxArguments = 255;
/// Operators, calls and blocks inside one another.
inline constexpr int kMaxNodeHeight = 200;
/// Lists and dicts inside one another, those of the variables included.
inline constexpr int kMaxValueDepth = 200;
/// Nodes being evaluated at one time; macros that call macros get there.
inline constexpr int kMaxEvaluationDepth = 1000;
/// Nodes evaluated, list items and dict keys looked at.
inline constexpr int64_t kMaxSteps = 5'000'000;
/// Text and lists made or searched, the output included.
inline constexpr int64_t kMaxBytes = int64_t{1} << 28;
/// Integers in one range; the sandbox of jinja2 has the same bound.
inline constexpr int64_t kMaxRangeLength = 100'000;

/// What one render has left to spend.
class Budget {
 public:
  void spend_steps(int64_t count) {
    steps_ -= count;
    if (steps_ < 0) {
      throw_error(ErrorCode::kInvalidArgument, "more than ", kMaxSteps, " evaluation steps");
    }
  }
  void spend_bytes(size_t count) {
    if (count > static_cast<size_t>(bytes_)) {
      throw_error(ErrorCode::kInvalidArgument, "more than ", kMaxBytes, " bytes of text and lists");
    }
    bytes_ -= static_cast<int64_t>(count);
  }

 private:
  int64_t steps_ = kMaxSteps;
  int64_t bytes_ = kMaxBytes;
};

}  // namespace heddle::chat_template
