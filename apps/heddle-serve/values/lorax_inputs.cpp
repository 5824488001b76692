#include "values/lorax_inputs.h"

#include <array>

#include "heddle/core/error.h"

#include "api/api_error.h"
#include "api/fields.h"

namespace heddle::serve {
namespace {

constexpr auto kInputs = std::to_array<std::string_view>({"inputs", "parameters"});
constexpr auto kInputParameters =
    std::to_array<std::string_view>({"adapter_id", "adapter_source", "cache_salt"});

}  // namespace

Generation read_lorax_inputs(const std::string& text, const app::ServeOptions& options,
                             const WantedValues& values) {
  files::JsonTree tree = parse_body(text);
  json& body = *tree;
  Generation generation;
  check_fields(body, kInputs, {}, options.ignore_unknown_fields, generation.ignored);
  Request request;
  request.text = app::RowReader(body, "request").required_text("inputs");
  request.values = values;
  json parameters = take(body, "parameters");
  if (parameters.is_null()) parameters.emplace_object();
  HEDDLE_CHECK(parameters.is_object(), "parameters is ", files::json_type(parameters),
               ", expected an object");
  check_fields(parameters, kInputParameters, {}, options.ignore_unknown_fields, generation.ignored);
  const app::RowReader row(parameters, "parameters");
  if (const json* source = row.find("adapter_source");
      source != nullptr && !files::is_text(*source, "local")) {
    throw bad_request(
        "adapter_source: only \"local\" is supported; the server's own adapters are "
        "named without it",
        "adapter_source");
  }
  if (const json* id = row.find("adapter_id")) {
    generation.choice.adapter_id = row.text("adapter_id", *id);
  }
  request.cache_salt = row.optional_text("cache_salt");
  generation.prompts.push_back(std::move(request));
  return generation;
}

}  // namespace heddle::serve
