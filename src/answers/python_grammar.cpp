// The grammar of calls as Python writes them, in EBNF.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answers/call_grammar.h"
#include "answers/tool_types.h"
#include "files/json_text.h"
#include "files/json_value.h"

namespace heddle::answers {
namespace {

using files::find_member;
using files::Json;

constexpr int kMaxItems = 8;  // lists in lists whose items have types

constexpr std::string_view kRules = R"(
any ::= string | number | "True" | "False" | "None" | list | dict
string ::= "\"" ( [^"\\\x00-\x1f] | "\\" ["'\\nrt] )* "\""
integer ::= "-"? ( "0" | [1-9] [0-9]* )
number ::= integer ( "." [0-9]+ )? ( [eE] [+-]? [0-9]+ )?
list ::= "[" ( any ( ", " any )* )? "]"
dict ::= "{" ( string ": " any ( ", " string ": " any )* )? "}"
named ::= [a-zA-Z_] [a-zA-Z0-9_]* "=" any
)";

/// A text between quotes, as the grammar writes it.
std::string terminal(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result.push_back('\\');
    if (c == '\n') {
      result += "\\n";
    } else {
      result.push_back(c);
    }
  }
  return result + '"';
}

std::string literal_of(const Json& value) {
  if (value.is_null()) return terminal("None");
  if (value.is_bool()) return terminal(value.get_bool() ? "True" : "False");
  return terminal(files::json_text(value));
}

std::string joined(const std::vector<std::string>& alternatives) {
  std::string result;
  for (const std::string& one : alternatives) {
    if (!result.empty()) result += " | ";
    result += one;
  }
  return alternatives.size() == 1 ? result : "( " + result + " )";
}

/// What the schema's values look like.
std::string value_of(const Json& schema, const Json& root, int depth) {
  const Json* at = &schema;
  for (int i = 0; i < kMaxItems; ++i) {
    const Json* to = find_member(*at, "$ref");
    const Json* found =
        to != nullptr && to->is_string() ? find_reference(files::text_of(*to), root) : nullptr;
    if (found == nullptr) break;
    at = found;
  }
  std::vector<std::string> alternatives;
  if (const Json* constant = find_member(*at, "const"); constant != nullptr) {
    return literal_of(*constant);
  }
  if (const Json* values = find_member(*at, "enum"); values != nullptr && values->is_array()) {
    for (const Json& value : values->get_array()) alternatives.push_back(literal_of(value));
    if (!alternatives.empty()) return joined(alternatives);
  }
  const uint8_t types = types_of_schema(*at, root);
  const Json* type = find_member(*at, "type");
  const bool is_integer = type != nullptr && files::is_text(*type, "integer");
  if ((types & kStringType) != 0) alternatives.emplace_back("string");
  if ((types & kNumberType) != 0) alternatives.emplace_back(is_integer ? "integer" : "number");
  if ((types & kBooleanType) != 0) alternatives.emplace_back("\"True\" | \"False\"");
  if ((types & kNullType) != 0) alternatives.emplace_back("\"None\"");
  if ((types & kObjectType) != 0) alternatives.emplace_back("dict");
  if ((types & kArrayType) != 0) {
    const Json* items = find_member(*at, "items");
    if (items != nullptr && depth < kMaxItems) {
      const std::string item = value_of(*items, root, depth + 1);
      alternatives.push_back("\"[\" ( " + item + " ( \", \" " + item + " )* )? \"]\"");
    } else {
      alternatives.emplace_back("list");
    }
  }
  return alternatives.empty() ? "any" : "( " + joined(alternatives) + " )";
}

bool is_python_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

bool has_python_names(const files::JsonObject& properties) {
  return std::all_of(properties.begin(), properties.end(),
                     [](const auto& entry) { return is_python_name(entry.key()); });
}

bool is_required(const Json& schema, std::string_view key) {
  const Json* required = find_member(schema, "required");
  if (required == nullptr || !required->is_array()) return false;
  return std::any_of(required->get_array().begin(), required->get_array().end(),
                     [&](const Json& name) { return files::is_text(name, key); });
}

/// Rules of a tool's arguments, each property in the order of the schema. `first` and `rest` rules
/// are those of the properties from the i-th on, before and after one was written.
std::string rules_of(const Json& schema, const std::string& name) {
  const Json* given = find_member(schema, "properties");
  const bool is_open = given == nullptr || !has_python_names(given->get_object());
  if (is_open) return name + "f0 ::= ( named ( \", \" named )* )?\n";
  const Json* additional = find_member(schema, "additionalProperties");
  const bool has_more = additional != nullptr && !files::is_bool(*additional, false);
  std::string rules;
  size_t index = 0;
  for (const auto& [key, value] : given->get_object()) {
    const std::string at = std::to_string(index), next = std::to_string(++index);
    const std::string one = terminal(std::string(key) + "=") + " " + value_of(value, schema, 0);
    const bool is_optional = !is_required(schema, key);
    rules += name + "f" + at + " ::= " + one + " " + name + "r" + next;
    rules += is_optional ? " | " + name + "f" + next + "\n" : "\n";
    rules += name + "r" + at + " ::= \", \" " + one + " " + name + "r" + next;
    rules += is_optional ? " | " + name + "r" + next + "\n" : "\n";
  }
  const std::string last = std::to_string(index);
  rules +=
      name + "f" + last + " ::= " + (has_more ? "( named ( \", \" named )* )?" : "\"\"") + "\n";
  rules += name + "r" + last + " ::= " + (has_more ? "( \", \" named )*" : "\"\"") + "\n";
  return rules;
}

}  // namespace

std::string python_grammar(const std::vector<GrammarTool>& tools, std::string_view separator,
                           bool is_single) {
  std::string grammar = "root ::= call";
  if (!is_single) grammar += " ( " + terminal(separator) + " call )*";
  grammar += "\n";
  std::vector<std::string> calls;
  std::string rules;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string name = "t" + std::to_string(i);
    calls.push_back(terminal(tools[i].name + "(") + " " + name + "f0 \")\"");
    rules += rules_of(tools[i].schema, name);
  }
  return grammar + "call ::= " + joined(calls) + "\n" + rules + std::string(kRules);
}

}  // namespace heddle::answers
