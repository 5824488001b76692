#include "engine/rules/schema/schema_grammar.h"

#include <string>

#include "heddle/core/error.h"

#include "engine/rules/schema/schema_rules.h"
#include "files/json_text.h"
#include "files/json_tree.h"
#include "files/json_value.h"

namespace heddle::grammar {
namespace {

using files::Json;
using files::JsonObject;

constexpr files::JsonLimits kLimits{.depth = 128, .members = 20'000};
constexpr size_t kMaxTagDepth = 100;

std::string grammar_of(const Json& schema) { return SchemaRules(schema).text(); }

/// Puts grammars in place of schemas within a part of a structural tag.
void replace_schemas(Json& part, size_t depth) {
  HEDDLE_CHECK(depth < kMaxTagDepth, "the structural tag is nested too deeply");
  if (auto* const array = part.if_array()) {
    for (Json& element : *array) replace_schemas(element, depth + 1);
    return;
  }
  JsonObject* const object = part.if_object();
  if (object == nullptr) return;
  const Json* const schema = object->if_contains("json_schema");
  const Json* const type = object->if_contains("type");
  const bool is_schema = schema != nullptr && (schema->is_object() || schema->is_bool()) &&
                         (type == nullptr || files::is_text(*type, "json_schema"));
  if (is_schema) {
    const Json* const style = object->if_contains("style");
    if (style != nullptr && !files::is_text(*style, "json")) {
      (void)grammar_of(*schema);  // refuses what the library would leave out
      return;
    }
    for (const auto& member : *object) {
      const std::string_view key = member.key();
      const bool is_known =
          key == "type" || key == "json_schema" || key == "style" || key == "max_whitespace_cnt";
      HEDDLE_CHECK(is_known, "the structural tag's json_schema has a field \"", key,
                   "\", which is not supported");
    }
    const JsonObject grammar{{"type", "grammar"}, {"grammar", grammar_of(*schema)}};
    part = grammar;
    return;
  }
  for (auto& member : *object) replace_schemas(member.value(), depth + 1);
}

}  // namespace

std::string schema_grammar(std::string_view schema) {
  return grammar_of(*files::parse_json(schema, "the schema", kLimits));
}

AnswerFormat without_schemas(const AnswerFormat& format) {
  using Kind = AnswerFormat::Kind;
  AnswerFormat result = format;
  if (format.kind == Kind::kJson) {
    result = {.kind = Kind::kGrammar, .source = grammar_of(JsonObject{{"type", "object"}})};
  } else if (format.kind == Kind::kJsonSchema) {
    result = {.kind = Kind::kGrammar, .source = schema_grammar(format.source)};
  } else if (format.kind == Kind::kLark) {
    HEDDLE_CHECK(format.source.find("%json") == std::string::npos,
                 "the grammar has %json, which is not supported; give the schema as json_schema");
  } else if (format.kind == Kind::kStructuralTag &&
             format.source.find("json_schema") != std::string::npos) {
    files::JsonTree tag = files::parse_json(format.source, "the structural tag", kLimits);
    replace_schemas(*tag, 0);
    result.source = files::json_text(*tag);
  }
  return result;
}

}  // namespace heddle::grammar
