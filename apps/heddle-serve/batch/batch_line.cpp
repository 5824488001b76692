#include "batch/batch_line.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "heddle/core/error.h"

#include "files/json_text.h"
#include "files/json_tree.h"
#include "files/json_value.h"
#include "request_json/ordered_json.h"
#include "request_json/row_reader.h"
#include "request_json/shown.h"
#include "routes/route.h"

namespace heddle::serve {
namespace {

using files::Json;
using files::JsonObject;

constexpr const char* kWhere = "the line";

bool answers_with_json(Route route) {
  constexpr Route kRoutes[] = {Route::kChat,        Route::kCompletion, Route::kResponses,
                               Route::kMessages,    Route::kEmbeddings, Route::kClassify,
                               Route::kScore,       Route::kRerank,     Route::kDecisions,
                               Route::kCountTokens, Route::kTokenize,   Route::kDetokenize};
  return std::ranges::find(kRoutes, route) != std::end(kRoutes);
}

/// {"message", ...} of the body's `error`, whichever API's it is; else the body.
std::string message_of(const std::string& body) {
  try {
    const files::JsonTree tree = files::parse_json(body, "body");
    const Json* const error = files::find_member(*tree, "error");
    const Json* const message = error == nullptr ? nullptr : files::find_member(*error, "message");
    if (message != nullptr && message->is_string()) return std::string(files::text_of(*message));
  } catch (const Error&) {  // it is shown as it is
  }
  return body;
}

JsonObject head_of_line(const std::string& custom_id, const std::string& request_id) {
  return {{"id", "batch_req_" + request_id},
          {"custom_id", custom_id.empty() ? Json() : Json(custom_id)}};
}

}  // namespace

void read_batch_line(const std::string& text, BatchLine& line) {
  constexpr auto kFields = std::to_array<std::string_view>({"custom_id", "method", "url", "body"});
  const files::JsonTree tree = app::parse_ordered_json(text, kWhere);
  HEDDLE_CHECK(tree->is_object(), kWhere, " is ", files::json_kind(*tree),
               ", expected an object with custom_id, method, url and body");
  const app::RowReader row(*tree, kWhere);
  line.custom_id = row.required_text("custom_id");
  HEDDLE_CHECK(!line.custom_id.empty(), kWhere, ": custom_id is empty");
  row.check_fields(kFields);
  line.request.method = row.required_text("method");
  line.request.path = row.required_text("url");
  HEDDLE_CHECK(line.request.method == "POST", kWhere, ": method is ",
               app::quote(line.request.method), ", expected \"POST\"");
  HEDDLE_CHECK(
      answers_with_json(route_of(line.request).route), kWhere, ": url is ",
      app::quote(line.request.path),
      ", expected a route such as /v1/chat/completions, /v1/completions or /v1/embeddings");
  const Json* const body = row.find("body");
  HEDDLE_CHECK(body != nullptr && body->is_object(), kWhere, ": body is missing or no object");
  line.request.body = files::json_text(*body);
}

std::string answered_line(const std::string& custom_id, const std::string& request_id,
                          const HttpResponse& response) {
  JsonObject line = head_of_line(custom_id, request_id);
  std::string text = files::json_text(line);
  text.pop_back();  // its brace: the body is JSON already, and is not parsed for this
  text += R"(,"response":{"status_code":)" + std::to_string(response.status) + R"(,"request_id":)" +
          files::json_string(request_id) + R"(,"body":)" + response.body + R"(},"error":)";
  if (response.status == 200) return text + "null}";
  const JsonObject error{{"code", std::to_string(response.status)},
                         {"message", message_of(response.body)}};
  return text + files::json_text(error) + "}";
}

std::string refused_line(const std::string& custom_id, const std::string& request_id,
                         const std::string& error) {
  JsonObject line = head_of_line(custom_id, request_id);
  line["response"] = Json();
  line["error"] = JsonObject{{"code", "invalid_line"}, {"message", error}};
  return files::json_text(line);
}

}  // namespace heddle::serve
