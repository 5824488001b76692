#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "files/json.h"

namespace heddle::files {

struct JsonLimits {
  size_t depth = 32;                 // of nested objects and arrays
  size_t members = size_t{1} << 20;  // of one object
};

/// Owns a JSON value and the memory that all its parts lie in, which is given back at once when the
/// tree ends. What is moved out of the value lies in that memory, too, and must not outlive it.
class JsonTree {
 public:
  JsonTree();  // null
  JsonTree(JsonTree&& other) noexcept;
  JsonTree& operator=(JsonTree&& other) noexcept;
  ~JsonTree();

  [[nodiscard]] Json& operator*();
  [[nodiscard]] const Json& operator*() const;
  [[nodiscard]] Json* operator->();
  [[nodiscard]] const Json* operator->() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Why a text is refused, for those who have words of their own for it.
class JsonFault : public std::runtime_error {
 public:
  enum class Kind {
    kMalformed,  // what() says where and why: "parse error at line 1, column 5: ..."
    kTwice,      // what() is the key, given twice in one object
    kDepth,
    kMembers,
  };
  JsonFault(Kind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  [[nodiscard]] Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

/// The value of a text, as RFC 8259 has it, in time in proportion to the text. Numbers are the
/// closest double, or exact where 64 bits hold them. Throws JsonFault and std::bad_alloc.
[[nodiscard]] JsonTree parse_json_text(std::string_view text, const JsonLimits& limits);

/// The same, with every fault an Error(kInvalidArgument) of one line that begins with `name`.
[[nodiscard]] JsonTree parse_json(std::string_view text, const std::string& name,
                                  const JsonLimits& limits = {});

}  // namespace heddle::files
