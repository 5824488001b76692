#include "values/lorax_inputs.h"

#include <array>
#include <utility>

#include "api/api_error.h"
#include "api/fields.h"
#include "api/lorax.h"

namespace heddle::serve {
namespace {

constexpr auto kInputs = std::to_array<std::string_view>({"inputs", "parameters", "stream"});
constexpr auto kInputParameters = std::to_array<std::string_view>({"cache_salt", "priority"});

}  // namespace

Generation read_lorax_inputs(files::JsonTree body, const app::ServeOptions& options,
                             const WantedValues& values) {
  Generation generation;
  check_fields(*body, kInputs, {}, options.ignore_unknown_fields, generation.ignored);
  const app::RowReader row(*body, "request");
  if (row.flag("stream", false)) {  // which LoRAX's client sends as false
    throw bad_request("stream: numbers come whole; set it to false or leave it out", "stream");
  }
  Request request;
  request.text = row.required_text("inputs");
  request.values = values;
  const json parameters = take_parameters(*body, kInputParameters, options, generation);
  const app::RowReader row_of(parameters, "parameters");
  request.cache_salt = row_of.optional_text("cache_salt");
  generation.priority = read_priority(row_of);
  generation.prompts.push_back(std::move(request));
  return generation;
}

}  // namespace heddle::serve
