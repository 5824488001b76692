#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/rules/schema/grammar_rules.h"
#include "engine/rules/schema/schema_place.h"
#include "engine/rules/schema/schema_types.h"
#include "engine/rules/schema/text_pattern.h"
#include "engine/rules/schema/text_rules.h"
#include "files/json_value.h"

namespace heddle::grammar {

/// Makes the rules of a schema's values.
class SchemaRules {
 public:
  using Rule = GrammarRules::Rule;
  using Sequence = GrammarRules::Sequence;
  using Json = files::Json;
  using JsonObject = files::JsonObject;

  /// The document outlives this.
  explicit SchemaRules(const Json& document) : document_(document), texts_(rules_) {}

  /// The EBNF. Throws Error, which names the place.
  [[nodiscard]] std::string text();

 private:
  /// An object: named properties in order, then others.
  struct ObjectPlan {
    struct Property {
      std::string_view name;
      bool is_required;
      Rule value;
    };
    std::vector<Property> properties{};
    Sequence other_name{};  // empty: no other ones
    Rule other_value = -1;
    int64_t min = 0, max = 0;
    bool is_open = false;  // names that nothing says are allowed
  };

  // What a schema means: of a value of any of the types.
  [[nodiscard]] Rule value(const Json& schema, const SchemaPlace& place, uint32_t types);
  [[nodiscard]] Rule none(const SchemaPlace& place);
  [[nodiscard]] Rule new_value(const Json& schema, const SchemaPlace& place, uint32_t types);
  [[nodiscard]] Rule any_value(uint32_t types);
  [[nodiscard]] Rule typed(const JsonObject& schema, const SchemaPlace& place, uint32_t types);
  [[nodiscard]] Rule refer(const Json& schema, std::string_view reference, uint32_t types);
  [[nodiscard]] Rule reference(const JsonObject& schema, const SchemaPlace& place, uint32_t types);
  [[nodiscard]] Rule values_of(const JsonObject& schema, const SchemaPlace& place, uint32_t types);
  [[nodiscard]] Rule any_of(const JsonObject& schema, const SchemaPlace& place,
                            std::string_view keyword, uint32_t types);
  [[nodiscard]] Rule all_of(const JsonObject& schema, const SchemaPlace& place, uint32_t types);
  struct Merge;
  void merge_member(Merge& all, const Json& member, const SchemaPlace& place, int depth);
  void merge(Merge& all, const JsonObject& schema, const SchemaPlace& place, int depth);
  void merge_keyword(Merge& all, std::string_view keyword, const Json& value,
                     const SchemaPlace& place);
  void check_keywords(const JsonObject& schema, const SchemaPlace& place);
  void check_alone(const JsonObject& schema, const SchemaPlace& place, std::string_view keyword);
  [[nodiscard]] uint32_t types_of(const JsonObject& schema, const SchemaPlace& place);

  [[nodiscard]] std::string number(const JsonObject& schema, const SchemaPlace& place,
                                   uint32_t types);
  [[nodiscard]] Rule multiples(const JsonObject& schema, const SchemaPlace& place);
  [[nodiscard]] Sequence string(const JsonObject& schema, const SchemaPlace& place);
  [[nodiscard]] Rule array(const JsonObject& schema, const SchemaPlace& place);
  [[nodiscard]] Rule elements(const std::vector<Rule>& first, Rule rest, int64_t min, int64_t max);
  [[nodiscard]] Rule object(const JsonObject& schema, const SchemaPlace& place);
  void add_properties(ObjectPlan& plan, const JsonObject& schema, const SchemaPlace& place);
  void add_pattern(ObjectPlan& plan, const JsonObject& schema, const SchemaPlace& place);
  void add_names(ObjectPlan& plan, const Json& names, const JsonObject& schema,
                 const SchemaPlace& place);
  void add_required(ObjectPlan& plan, const JsonObject& schema, const SchemaPlace& place);
  void add_others(ObjectPlan& plan, const JsonObject& schema, const SchemaPlace& place);
  void count_properties(ObjectPlan& plan, const JsonObject& schema, const SchemaPlace& place);
  [[nodiscard]] Rule members(const ObjectPlan& plan);
  [[nodiscard]] Rule additional(const JsonObject& schema, const SchemaPlace& place);

  const Json& document_;
  GrammarRules rules_;
  TextRules texts_;
  std::map<std::pair<const Json*, uint32_t>, Rule> made_{};
  struct Referred {
    const Json* schema;
    std::string_view reference;
    uint32_t types;
    Rule rule;
  };
  std::deque<Referred> referred_{};       // whose rules are to be made
  std::map<Rule, std::string> places_{};  // of what is referred to, and of what has no values
  std::deque<Json> merged_{};             // schemas that allOf comes to
  size_t num_merged_ = 0;                 // values that were copied for them
  int depth_ = 0;
};

/// The number of a keyword that counts; `otherwise` where the schema has none.
[[nodiscard]] int64_t count_of(const files::JsonObject& schema, const SchemaPlace& place,
                               std::string_view keyword, int64_t otherwise);
/// Follows references to a schema that is none. nullptr: one leads nowhere, or round in a circle.
[[nodiscard]] const files::Json* resolve(const files::Json& document, const files::Json& schema);
/// Two of the schemas of which it is not known that no answer to one of them fits the other.
[[nodiscard]] std::optional<std::pair<size_t, size_t>> find_overlap(
    const files::Json& document, const files::JsonArray& schemas);
/// EBNF of strings, numbers and the like of any kind, which all rules use.
[[nodiscard]] const std::string& common_rules();
}  // namespace heddle::grammar
