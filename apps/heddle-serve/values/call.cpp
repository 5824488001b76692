#include "values/call.h"

#include <array>
#include <ctime>
#include <limits>
#include <utility>

namespace heddle::serve {
namespace {

constexpr auto kValuesFields = std::to_array<std::string_view>(
    {"model", "adapter_id", "adapter_source", "api_token", "lora", "merge",
     "truncate_prompt_tokens", "add_special_tokens", "cache_salt", "priority", "request_id"});

class ValuesForm final : public AnswerForm {
 public:
  ValuesForm(ValuesCall call, CallNames names, bool is_lorax)
      : call_(std::move(call)), names_(std::move(names)), is_lorax_(is_lorax) {}

  // Numbers come whole.
  std::string added(size_t, const Event&) override { return {}; }
  std::string end(std::span<const Completion>) override { return {}; }
  std::string failure(const ApiError& error) override { return refusal(error).body; }

  std::string whole(std::span<const Completion> rows) override {
    return files::json_text(call_.write(rows, names_));
  }
  HttpResponse refusal(const ApiError& error) override {
    return is_lorax_ ? lorax_error(error) : openai_error(error);
  }

 private:
  ValuesCall call_;
  CallNames names_;
  bool is_lorax_;
};

}  // namespace

std::unique_ptr<AnswerForm> values_form(ValuesCall call, CallNames names, bool is_lorax) {
  return std::make_unique<ValuesForm>(std::move(call), std::move(names), is_lorax);
}

ValuesBody read_values_body(files::JsonTree tree, std::span<const std::string_view> fields,
                            const app::ServeOptions& options) {
  ValuesBody body{.tree = std::move(tree)};
  auto& [value, generation, request] = body;
  check_fields(*value, kValuesFields, fields, options.ignore_unknown_fields, generation.ignored);
  const app::RowReader row(*value, "request");
  read_model(row, generation);
  generation.request_id = row.optional_text("request_id");
  if (row.find("add_special_tokens") != nullptr) {
    request.add_special_tokens = row.flag("add_special_tokens", true);
  }
  const int64_t kept =
      row.integer("truncate_prompt_tokens", 0, -1, std::numeric_limits<int32_t>::max());
  if (kept < 0) {
    generation.room = 1;  // vLLM's word for what the context holds
  } else {
    request.truncate_prompt_tokens = kept;
  }
  request.cache_salt = row.optional_text("cache_salt");
  generation.priority = read_priority(row);
  return body;
}

JsonObject values_usage(std::span<const Completion> rows) {
  int64_t tokens = 0;
  for (const Completion& row : rows) tokens += row.prompt_tokens;
  return {{"prompt_tokens", tokens}, {"total_tokens", tokens}};
}

JsonObject values_head(const char* prefix, const CallNames& names) {
  return {{"id", prefix + names.id},
          {"object", "list"},
          {"created", static_cast<int64_t>(std::time(nullptr))},
          {"model", names.model}};
}

JsonArray number_list(std::span<const float> values) {
  JsonArray list;
  list.reserve(values.size());
  for (const float value : values) list.emplace_back(static_cast<double>(value));
  return list;
}

}  // namespace heddle::serve
