#include "values/classify.h"

#include <algorithm>
#include <array>
#include <utility>

#include "api/openai_request.h"
#include "values/lorax_inputs.h"

namespace heddle::serve {
namespace {

using app::RowReader;

constexpr auto kClassifyFields =
    std::to_array<std::string_view>({"input", "use_activation", "activation", "softmax"});

/// Whether classes are probabilities; vLLM has had three names for it.
bool read_activation(const RowReader& row) {
  bool activates = true;
  for (const char* name : {"softmax", "activation", "use_activation"}) {
    activates = row.flag(name, activates);
  }
  return activates;
}

size_t likeliest(const Completion& row) {
  return static_cast<size_t>(std::ranges::max_element(row.values) - row.values.begin());
}

/// LoRAX lists entities of a text: the class is that of the text as a whole.
ValuesCall read_lorax_classify(files::JsonTree body, const app::ServeOptions& options) {
  ValuesCall call;
  call.generation =
      read_lorax_inputs(std::move(body), options, {.kind = WantedValues::Kind::kClasses});
  const std::string& input = *call.generation.prompts.front().text;
  call.write = [input](std::span<const Completion> rows, const CallNames&) -> json {
    const Completion& row = rows.front();
    const size_t best = likeliest(row);
    return JsonArray{JsonObject{{"entity", row.labels[best]},
                                {"score", static_cast<double>(row.values[best])},
                                {"index", 0},
                                {"word", input},
                                {"start", 0},
                                {"end", input.size()}}};
  };
  return call;
}

}  // namespace

ValuesCall read_classify(const std::string& text, const app::ServeOptions& options) {
  files::JsonTree tree = parse_body(text);
  if (files::find_member(*tree, "inputs") != nullptr) {
    return read_lorax_classify(std::move(tree), options);
  }
  auto [body, generation, request] = read_values_body(std::move(tree), kClassifyFields, options);
  ValuesCall call{.generation = std::move(generation)};
  const RowReader row(*body, "request");
  request.values = {.kind = WantedValues::Kind::kClasses, .activates = read_activation(row)};
  const json* const input = row.find("input");
  call.generation.prompts =
      prompts_of(input == nullptr ? json() : *input, "input", request, options.limits.prompts);
  call.write = [](std::span<const Completion> rows, const CallNames& names) -> json {
    JsonObject answer = values_head("classify-", names);
    JsonArray& data = answer["data"].emplace_array();
    for (const Completion& each : rows) {
      data.push_back(JsonObject{{"index", data.size()},
                                {"label", each.labels[likeliest(each)]},
                                {"probs", number_list(each.values)},
                                {"num_classes", each.values.size()}});
    }
    answer["usage"] = values_usage(rows);
    return answer;
  };
  return call;
}

}  // namespace heddle::serve
