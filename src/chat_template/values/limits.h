// What a template may cost. A template comes out of a downloaded file, so it can be hostile: every
// render ends soon and in bounded memory, whatever the template says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

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

/// What a value of its own takes besides its text or items: the object, the count of its owners and
/// what the allocator adds.
inline constexpr size_t kObjectBytes = 96;

/// What one render has left to spend. Whatever a template makes the interpreter do is spent here
/// first: no memory is taken and no loop begun that has not been paid for, so that a render that
/// passes its budget ends there, having used no more than a small multiple of it.
class Budget {
 public:
  Budget() = default;
  Budget(int64_t steps, int64_t bytes)
      : max_steps_(steps), max_bytes_(bytes), steps_(steps), bytes_(bytes) {}

  /// For work of a fixed size each: a node, an item, a comparison.
  void spend_steps(size_t count) {
    if (count > static_cast<size_t>(steps_)) {
      throw_error(ErrorCode::kInvalidArgument, "more than ", max_steps_, " evaluation steps");
    }
    steps_ -= static_cast<int64_t>(count);
  }
  /// For `count` pieces of `size` bytes that are about to be made, copied or searched.
  void spend_bytes(size_t count, size_t size = 1) {
    if (size != 0 && count > static_cast<size_t>(bytes_) / size) {
      throw_error(ErrorCode::kInvalidArgument, "more than ", max_bytes_,
                  " bytes of text and lists");
    }
    bytes_ -= static_cast<int64_t>(count * size);
  }

  [[nodiscard]] int64_t spent_steps() const { return max_steps_ - steps_; }
  [[nodiscard]] int64_t spent_bytes() const { return max_bytes_ - bytes_; }

 private:
  int64_t max_steps_ = kMaxSteps, max_bytes_ = kMaxBytes;
  int64_t steps_ = kMaxSteps, bytes_ = kMaxBytes;
};

/// Text in the making: each piece is spent before memory is taken for it.
class BudgetedText {
 public:
  explicit BudgetedText(Budget& budget) : budget_(budget) { budget.spend_bytes(kObjectBytes); }
  BudgetedText& operator+=(std::string_view piece) {
    budget_.spend_bytes(piece.size());
    text_ += piece;
    return *this;
  }
  BudgetedText& operator+=(char c) { return *this += std::string_view(&c, 1); }
  /// The text, which leaves this.
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  Budget& budget_;
  std::string text_;
};

}  // namespace heddle::chat_template
