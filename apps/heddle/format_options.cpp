#include "format_options.h"

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "heddle/core/error.h"

#include "files/json_value.h"
#include "option_group.h"
#include "request_json/format_fields.h"
#include "request_json/ordered_json.h"

namespace heddle::app {
namespace {

constexpr size_t kMaxFile = 1 << 20;  // bytes of a schema or grammar

std::string text_of_file(const std::string& option, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFile + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  HEDDLE_CHECK(file.is_open() && !file.bad(), option, " ", path, ": cannot read it");
  text.resize(static_cast<size_t>(file.gcount()));
  HEDDLE_CHECK(text.size() <= kMaxFile, option, " ", path, ": has more than ", kMaxFile, " bytes");
  HEDDLE_CHECK(!text.empty(), option, " ", path, ": is empty");
  return text;
}

AnswerFormat schema_of_file(const std::string& path) {
  std::string text = text_of_file("--json-schema", path);
  const files::JsonTree schema = parse_ordered_json(text, "--json-schema " + path);
  HEDDLE_CHECK(schema->is_object(), "--json-schema ", path, ": is ", files::json_type(*schema),
               ", expected an object");
  return {.kind = AnswerFormat::Kind::kJsonSchema, .source = std::move(text)};
}

}  // namespace

void add_format_options(CLI::App& command, AnswerFormat& format) {
  const OptionGroup group(command, "Answers");
  std::vector<CLI::Option*> options;
  const auto add = [&](CLI::Option* option) { options.push_back(option); };
  add(group.text(
      "--json-schema", [&format](const std::string& path) { format = schema_of_file(path); }, "",
      "FILE", "JSON schema that every answer fits"));
  add(group.text(
      "--grammar",
      [&format](const std::string& path) {
        format = grammar_format(text_of_file("--grammar", path));
      },
      "", "FILE", "Grammar of every answer, in GBNF or in Lark"));
  add(group.text(
      "--regex",
      [&format](const std::string& pattern) {
        format = {.kind = AnswerFormat::Kind::kRegex, .source = pattern};
      },
      "", "PATTERN", "Regular expression that every answer matches as a whole"));
  CLI::Option* const choice = command.add_option_function<std::vector<std::string>>(
      "--choice",
      [&format](const std::vector<std::string>& texts) {
        format = {.kind = AnswerFormat::Kind::kChoice, .choices = texts};
      },
      "Text that an answer may be; can be repeated: every answer is one of them");
  add(choice->allow_extra_args(false)->type_name("TEXT")->group("Answers"));
  for (size_t i = 0; i < options.size(); ++i) {
    for (size_t j = 0; j < i; ++j) options[i]->excludes(options[j]);
  }
}

}  // namespace heddle::app
