#pragma once

#include <cstdint>
#include <string_view>

namespace heddle::model {

/// How an adapter's tensors change a product: what peft_type of adapter_config.json says, or the
/// form of another trainer. docs/adapter_kinds.md has the formulas.
enum class AdapterMethod : uint8_t { kLora, kLoha, kVera, kRandLora, kIa3, kMlx };

struct AdapterMethodInfo {
  AdapterMethod method;
  std::string_view peft_type;
  int64_t r;                     // where adapter_config.json does not say it
  std::string_view alpha_field;  // empty: the scale is 1
  double alpha;                  // where the field is missing
};

[[nodiscard]] const AdapterMethodInfo& info_of(AdapterMethod method);
/// Null where heddle has no such method.
[[nodiscard]] const AdapterMethodInfo* find_method(std::string_view peft_type);
/// Why a method of PEFT's cannot run as A and B next to other adapters; ends a sentence.
[[nodiscard]] std::string_view why_not(std::string_view peft_type);

}  // namespace heddle::model
