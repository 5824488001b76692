// What the readers of the APIs whose bodies become chat completions share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/core/thread_pool.h"

#include "api/api_error.h"
#include "api/field_table.h"
#include "api/generation.h"
#include "files/json_tree.h"
#include "files/json_value.h"
#include "options.h"
#include "request_json/field_error.h"

namespace heddle::serve {

using json = files::Json;
using files::JsonArray;
using files::JsonObject;

/// The members of an object inside a body.
struct Members {
  std::span<const std::string_view> known;      // those that are read, or say nothing
  std::span<const std::string_view> ignored{};  // accepted, without effect
};

/// What chat completions call the fields of a body: each name, and the body's own in its place.
using FieldNames = std::span<const std::pair<std::string_view, std::string_view>>;

/// "tools[0].function.name" as the body has it: "tools[0].name".
[[nodiscard]] std::string name_in(FieldNames names, std::string field);
/// The error of a field of the chat completion as one of the body's.
[[nodiscard]] app::FieldError error_in(FieldNames names, const app::FieldError& error);

/// A body on its way to that of a chat completion.
class Translation {
 public:
  explicit Translation(const app::ServeOptions& options);

  [[nodiscard]] const app::ServeOptions& options() const { return options_; }
  /// The fields of the chat completion, which begin without any.
  [[nodiscard]] JsonObject& chat() { return (*chat_).get_object(); }

  /// Takes the fields of the table out of a body: at values that are accepted, else they are
  /// refused by name.
  void take_passive(json& body, std::span<const PassiveField> table);
  /// Refuses fields of a body that are not `known`, those of every API aside, as check_fields does.
  void check_body(json& body, std::span<const std::string_view> known);
  /// Takes heddle's and vLLM's further fields over: adapters, ways of sampling, ends of answers.
  void take_further(const json& body);
  /// The object at `where`, such as "input[3]", has these members alone; those that are null count
  /// as missing. `path` is the same without numbers, for the names of ignored ones.
  void check_members(const json& object, const std::string& where, const std::string& path,
                     const Members& members);
  void ignore(const std::string& name);

  /// What the chat completion asks for.
  [[nodiscard]] Generation read(FieldNames names);

 private:
  const app::ServeOptions& options_;
  files::JsonTree chat_;
  std::vector<std::string> ignored_;
};

/// The names of the fields of take_further.
[[nodiscard]] std::span<const std::string_view> further_fields();

/// The place of a body's own fields, in errors.
inline constexpr const char* kBodyName = "request";

/// Throws ApiError: "input[3]: what".
[[noreturn]] void refuse_at(const std::string& where, const std::string& what);
/// "input[3]"
[[nodiscard]] std::string place_in(const std::string& list, size_t index);

/// The member, which must be there, as what is expected of it.
[[nodiscard]] std::string_view text_in(const json& object, std::string_view name,
                                       const std::string& where);
[[nodiscard]] const JsonArray& list_in(const json& object, std::string_view name,
                                       const std::string& where);
/// An object at that place.
void check_is_object(const json& value, const std::string& where);
/// The member, a whole number of at least 1.
[[nodiscard]] int64_t count_in(const json& object, std::string_view name, const std::string& where);
/// The member as one of these words; the second: empty where it is not given.
[[nodiscard]] std::string_view word_in(const json& object, std::string_view name,
                                       const std::string& where,
                                       std::span<const std::string_view> words);
[[nodiscard]] std::string_view given_word_in(const json& object, std::string_view name,
                                             const std::string& where,
                                             std::span<const std::string_view> words);
/// The member as true or false, which is false where it is not given.
[[nodiscard]] bool flag_in(const json& object, std::string_view name, const std::string& where);

/// Texts of a list, as content of a message has them: one is a string, several are parts.
class Texts {
 public:
  void add(std::string_view text);
  void add(const Texts& others);
  [[nodiscard]] bool empty() const { return texts_.empty(); }
  [[nodiscard]] json content() const;
  /// One after another.
  [[nodiscard]] std::string joined() const;

 private:
  std::vector<std::string> texts_;
};

/// A text, or a list of `elements` ("parts"), each of which add(element, where, texts) adds.
[[nodiscard]] Texts read_texts(const json& content, const std::string& where, const char* elements,
                               FunctionRef<void(const json&, const std::string&, Texts&)> add);

}  // namespace heddle::serve
