#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/engine/json_value.h"

#include "files/json.h"

namespace heddle::answers {

/// Types that a parameter may have; bits.
enum ParameterType : uint8_t {
  kStringType = 1,
  kNumberType = 2,
  kBooleanType = 4,
  kNullType = 8,
  kObjectType = 16,
  kArrayType = 32
};

/// The types of the parameters of tools, as their schemas have them.
class ToolTypes {
 public:
  /// Of an array as in OpenAI's chat API. What is no such tool is left out.
  explicit ToolTypes(const JsonValue& tools);

  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  /// Bits; 0: unknown.
  [[nodiscard]] uint8_t types_of(std::string_view tool, std::string_view parameter) const;

 private:
  std::vector<std::string> names_;
  std::map<std::string, std::map<std::string, uint8_t, std::less<>>, std::less<>> types_;
};

/// Bits of the types that the schema lets a value have; 0: it does not say. `root` is where its
/// references lead.
[[nodiscard]] uint8_t types_of_schema(const files::Json& schema, const files::Json& root);
/// What a reference within `root` leads to ("#/$defs/Unit"); null where it leads nowhere.
[[nodiscard]] const files::Json* find_reference(std::string_view reference,
                                                const files::Json& root);

/// The JSON text of a value that a model wrote without quotes: as the first of its types that the
/// text is, else a string.
[[nodiscard]] std::string json_of_argument(std::string_view text, uint8_t types);

}  // namespace heddle::answers
