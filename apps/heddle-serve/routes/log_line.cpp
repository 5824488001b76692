#include "routes/log_line.h"

#include <cmath>
#include <ctime>
#include <memory>

#include <spdlog/pattern_formatter.h>
#include <spdlog/spdlog.h>

#include "api/forms/token_json.h"
#include "log_pattern.h"
#include "request_json/shown.h"

namespace heddle::serve {
namespace {

bool writes_json = false;

/// What is logged as members of a JSON object: those of an object, else the text as `message`.
class JsonMembers final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& line, const std::tm&,
              spdlog::memory_buf_t& to) override {
    const std::string_view text(line.payload.data(), line.payload.size());
    const std::string whole =
        text.starts_with('{') ? std::string(text) : files::json_text(JsonObject{{"message", text}});
    to.append(whole.data() + 1, whole.data() + whole.size() - 1);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<JsonMembers>();
  }
};

double in_milliseconds(double seconds) { return std::round(seconds * 1e5) / 1e2; }

}  // namespace

void start_log(bool is_json) {
  writes_json = is_json;
  if (!is_json) return app::set_log_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %*");
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<JsonMembers>('*').set_pattern(
      R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%*})");
  spdlog::set_formatter(std::move(formatter));
}

void write_log(const RequestLog& log) {
  if (log.outcome.empty()) return;
  JsonObject line{{"route", app::shown(log.route)},
                  {"id", app::shown(log.id)},
                  {"status", log.status},
                  {"outcome", log.outcome}};
  if (log.request_id != log.id) line["request_id"] = log.request_id;
  if (!log.client.empty()) line["client"] = log.client;
  if (!log.key.empty()) line["key"] = log.key;
  if (!log.parent.trace_id.empty()) {
    line["trace_id"] = log.parent.trace_id;
    line["parent_id"] = log.parent.parent_id;
  }
  if (log.times.end > 0) {
    line["adapter"] = app::shown(log.adapter);
    line["prompt_tokens"] = log.prompt_tokens;
    line["answer_tokens"] = log.answer_tokens;
    line["first_token_ms"] = in_milliseconds(log.times.first_token);
    line["total_ms"] = in_milliseconds(log.times.end);
  }
  if (writes_json) {
    spdlog::info("{}", files::json_text(line));
    return;
  }
  std::string text;
  for (const auto& member : line) {
    const json& value = member.value();
    text.append(text.empty() ? "" : " ").append(member.key()).append("=");
    const bool is_plain =
        value.is_string() && files::text_of(value).find_first_of(" =\"") == std::string_view::npos;
    if (is_plain) {
      text += files::text_of(value);
    } else {  // so that no client's id looks like members of the line
      files::append_json(text, value);
    }
  }
  spdlog::info("{}", text);
}

}  // namespace heddle::serve
