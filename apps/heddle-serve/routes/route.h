#pragma once

#include <string>

#include "http/message.h"

namespace heddle::serve {

/// The route of a request, by its method and path.
enum class Route : uint8_t {
  kNone,
  kChat,
  kCompletion,
  kLorax,
  kTokenize,
  kDetokenize,
  kEmbeddings,
  kLoraxEmbed,
  kClassify,
  kScore,
  kRerank,
  kDecisions,
  kResponses,
  kShowResponse,    // its id in the path
  kDeleteResponse,  // its id in the path
  kMessages,
  kCountTokens,
  kLoadAdapter,
  kLoadTensors,
  kUnloadAdapter,
  kDeleteAdapter,  // its name in the path
  kListAdapters,
  kShowScales,
  kSetScales,
  kResetPrefixCache,
  kHealth,
  kMetrics,
  kState,
  kVersion,
  kInfo,
  kExamples,  // of an adapter, whose name is in the path
  kListModels,
  kShowModel,  // its name in the path
  kPage,       // a file of the page, if it has this one
};

struct RouteMatch {
  Route route = Route::kNone;
  std::string name{};  // the one in the path, "%73ql" as "sql"
};

[[nodiscard]] RouteMatch route_of(const HttpRequest& head);
/// The methods of the path, as the header Allow lists them; empty: there is no such path.
[[nodiscard]] std::string allowed_methods(const std::string& path);
/// Whether the request asks how the server is, as those do who know nothing but its port.
[[nodiscard]] bool is_health_route(const HttpRequest& head);
/// Whether the route exists only with an admin key: those that change which adapters there are, and
/// what the prefix cache has.
[[nodiscard]] bool is_admin_route(const HttpRequest& head);
/// Whether its body is the weights of an adapter, or has them.
[[nodiscard]] bool brings_adapter(const HttpRequest& head);
/// The media type of its body, in lower case: "application/json".
[[nodiscard]] std::string media_type(const HttpRequest& head);
/// Whether errors have LoRAX's form.
[[nodiscard]] bool is_lorax_route(const HttpRequest& head);
/// The route as a label of metrics: there are no more of these than routes, whatever clients send.
[[nodiscard]] const char* label_of(const HttpRequest& head);

}  // namespace heddle::serve
