#include "routes/route.h"

#include <algorithm>

#include "files/percent.h"

namespace heddle::serve {
namespace {

constexpr std::string_view kAdapters = "/v1/loras", kModels = "/v1/models", kPage = "/page",
                           kResponses = "/v1/responses", kExamples = "/examples";

struct Entry {
  const char* method;
  const char* path;
  Route route;
};

constexpr Entry kTable[] = {{"POST", "/v1/chat/completions", Route::kChat},
                            {"POST", "/v1/completions", Route::kCompletion},
                            {"POST", "/chat/completions", Route::kChat},
                            {"POST", "/completions", Route::kCompletion},
                            {"POST", "/generate", Route::kLorax},
                            {"POST", "/generate_stream", Route::kLorax},
                            {"POST", "/", Route::kLorax},
                            {"POST", "/tokenize", Route::kTokenize},
                            {"POST", "/detokenize", Route::kDetokenize},
                            {"POST", "/v1/embeddings", Route::kEmbeddings},
                            {"POST", "/embeddings", Route::kEmbeddings},
                            {"POST", "/embed", Route::kLoraxEmbed},
                            {"POST", "/v1/classify", Route::kClassify},
                            {"POST", "/classify", Route::kClassify},
                            {"POST", "/v1/score", Route::kScore},
                            {"POST", "/score", Route::kScore},
                            {"POST", "/rerank", Route::kRerank},
                            {"POST", "/v1/rerank", Route::kRerank},
                            {"POST", "/v2/rerank", Route::kRerank},
                            {"POST", "/v1/decisions", Route::kDecisions},
                            {"POST", "/v1/responses", Route::kResponses},
                            {"POST", "/responses", Route::kResponses},
                            {"POST", "/v1/messages", Route::kMessages},
                            {"POST", "/v1/messages/count_tokens", Route::kCountTokens},
                            {"POST", "/v1/load_lora_adapter", Route::kLoadAdapter},
                            {"POST", "/load_lora_adapter", Route::kLoadAdapter},
                            {"POST", "/v1/loras", Route::kLoadAdapter},
                            {"POST", "/load_lora_adapter_from_tensors", Route::kLoadTensors},
                            {"POST", "/v1/unload_lora_adapter", Route::kUnloadAdapter},
                            {"POST", "/unload_lora_adapter", Route::kUnloadAdapter},
                            {"GET", "/v1/loras", Route::kListAdapters},
                            {"GET", "/lora-adapters", Route::kShowScales},
                            {"POST", "/lora-adapters", Route::kSetScales},
                            {"POST", "/reset_prefix_cache", Route::kResetPrefixCache},
                            {"GET", "/health", Route::kHealth},
                            {"GET", "/startup", Route::kHealth},
                            {"GET", "/ping", Route::kHealth},
                            {"GET", "/livez", Route::kHealth},
                            {"GET", "/readyz", Route::kHealth},
                            {"GET", "/metrics", Route::kMetrics},
                            {"GET", "/state", Route::kState},
                            {"GET", "/version", Route::kVersion},
                            {"GET", "/info", Route::kInfo},
                            {"GET", "/v1/models", Route::kListModels},
                            {"GET", "/models", Route::kListModels}};

/// Whether the path is one in the folder, such as "/v1/models/sql" in "/v1/models".
bool is_in(const std::string& path, std::string_view folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

}  // namespace

RouteMatch route_of(const HttpRequest& head) {
  for (const Entry& entry : kTable) {
    if (head.path == entry.path && head.method == entry.method) return {.route = entry.route};
  }
  const auto named = [&head](Route route, std::string_view folder) -> RouteMatch {
    return {.route = route,
            .name = files::percent_decoded(std::string_view(head.path).substr(folder.size() + 1))};
  };
  if (head.method == "DELETE" && is_in(head.path, kAdapters)) {
    return named(Route::kDeleteAdapter, kAdapters);
  }
  if (head.method == "DELETE" && is_in(head.path, kResponses)) {
    return named(Route::kDeleteResponse, kResponses);
  }
  if (head.method != "GET") return {};
  if (is_in(head.path, kModels)) return named(Route::kShowModel, kModels);
  if (is_in(head.path, kResponses)) return named(Route::kShowResponse, kResponses);
  if (is_in(head.path, kExamples)) return named(Route::kExamples, kExamples);
  return {.route = Route::kPage};
}

std::string allowed_methods(const std::string& path) {
  std::string methods;
  const auto add = [&methods](std::string_view method) {
    if (!methods.empty()) methods += ", ";
    methods += method;
    if (method == "GET") methods += ", HEAD";
  };
  const bool has_names = is_in(path, kModels) || is_in(path, kResponses) || is_in(path, kExamples);
  if (path == "/" || is_in(path, kPage) || has_names) add("GET");
  if (is_in(path, kAdapters) || is_in(path, kResponses)) add("DELETE");
  for (const Entry& entry : kTable) {
    if (path == entry.path) add(entry.method);
  }
  return methods;
}

bool is_health_route(const HttpRequest& head) {
  const RouteMatch match = route_of(head);
  return match.route == Route::kHealth;
}

bool is_admin_route(const HttpRequest& head) {
  constexpr std::string_view kAdmin[] = {"/v1/load_lora_adapter", "/v1/unload_lora_adapter",
                                         "/load_lora_adapter",    "/load_lora_adapter_from_tensors",
                                         "/unload_lora_adapter",  "/lora-adapters",
                                         "/reset_prefix_cache",   kAdapters};
  return std::ranges::find(kAdmin, head.path) != std::end(kAdmin) || is_in(head.path, kAdapters);
}

bool brings_adapter(const HttpRequest& head) {
  const Route route = route_of(head).route;
  return route == Route::kLoadTensors ||
         (route == Route::kLoadAdapter && media_type(head) == "application/octet-stream");
}

std::string media_type(const HttpRequest& head) {
  constexpr const char* kSpaces = " \t";
  std::string_view type = head.header("Content-Type");
  type = type.substr(0, type.find(';'));
  const size_t begin = type.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return lower_case(type.substr(begin, type.find_last_not_of(kSpaces) - begin + 1));
}

bool is_lorax_route(const HttpRequest& head) {
  return head.path == "/generate" || head.path == "/generate_stream" || head.path == "/" ||
         head.path == "/embed";
}

const char* label_of(const HttpRequest& head) {
  const auto place =
      std::ranges::find_if(kTable, [&head](const Entry& entry) { return head.path == entry.path; });
  return place == std::end(kTable) ? "other" : place->path;
}

}  // namespace heddle::serve
