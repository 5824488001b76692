#pragma once

#include <cstdint>
#include <string_view>

#include "files/json.h"

namespace heddle::serve {

/// Values at which a field has no effect.
namespace neutral {
inline constexpr uint32_t kFalse = 1 << 0, kTrue = 1 << 1, kZero = 1 << 2, kOne = 1 << 3,
                          kMinusOne = 1 << 4,
                          kEmpty = 1 << 5,  // a string, list or object without anything
    kNone = 1 << 6,                         // "none"
    kAuto = 1 << 7,                         // "auto"
    kText = 1 << 8,                         // "text", ["text"] and {"type": "text"}
    kLeft = 1 << 9,                         // "left"
    kAnything = 1 << 10;
}  // namespace neutral

/// A field that requests of other servers have and heddle does not act on.
struct PassiveField {
  std::string_view name;
  uint32_t values;           // those at which it is accepted
  std::string_view refusal;  // of others, after the name; empty for a hint, which has none
};

/// The field of this name; nullptr: there is no such one.
[[nodiscard]] const PassiveField* find_passive(std::string_view name);
/// Whether a request with this value is answered.
[[nodiscard]] bool is_accepted(const PassiveField& field, const files::Json& value);
/// Whether the field is a mere hint for the answer, and is named among those without
/// effect. The value of another field that is accepted is what heddle does anyway.
[[nodiscard]] inline bool is_hint(const PassiveField& field) { return field.refusal.empty(); }

}  // namespace heddle::serve
