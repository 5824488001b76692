#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "http/responder.h"
#include "service/service.h"

namespace heddle::serve {

/// Whether the adapter of a name is for the one who asks.
using ShowsAdapter = std::function<bool(const std::string& name)>;

/// GET /v1/models and /v1/models/{id}. The one of a single adapter has its receipt, and waits for
/// the norms.
[[nodiscard]] HttpResponse list_models(Service& service, const ShowsAdapter& shows);
boost::asio::awaitable<HttpResponse> show_model(Service& service, const std::string& name);

/// The name that an adapter gets, whether another one may have it, and what becomes of that.
struct NewAdapter {
  std::string name;
  bool replaces = false;
  RunningRequests running = RunningRequests::kFinish;  // with replaces
  std::optional<int64_t> keep_versions{};              // of the name
};
/// What becomes of unfinished answers: "finish" or "switch". Throws ApiError.
[[nodiscard]] RunningRequests read_running(const std::string& word, bool replaces);
/// Loads an adapter from memory. Throws ApiError.
boost::asio::awaitable<HttpResponse> load_content(Service& service, const NewAdapter& load,
                                                  const AdapterContent& content);
/// Loads an adapter under a name, as vLLM's route of that name. Throws ApiError.
boost::asio::awaitable<HttpResponse> load_adapter(Service& service, const std::string& body);
/// Takes a name away; rows that have it end with it.
boost::asio::awaitable<HttpResponse> unload_adapter(Service& service, const std::string& name);
/// The name in the body of an unload.
[[nodiscard]] std::string unload_name(const Service& service, const std::string& body);

/// The scales of adapters for requests that name none, in llama.cpp's form.
[[nodiscard]] HttpResponse show_scales(Service& service);
/// Sets all of them; adapters that the body does not name have 0. Throws ApiError.
[[nodiscard]] HttpResponse set_scales(Service& service, const std::string& body);

/// Where an adapter of this path is: in the folder, whatever links it has. Throws ApiError.
[[nodiscard]] std::string path_in_root(const std::string& root, const std::string& path);

}  // namespace heddle::serve
