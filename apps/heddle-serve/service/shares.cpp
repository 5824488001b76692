#include "service/shares.h"

#include "heddle/core/error.h"

namespace heddle::serve {
namespace {

std::string first_adapter(const Request& request) {
  const std::string& name =
      request.adapters.empty() ? request.adapter : request.adapters.front().name;
  return name.empty() ? app::kBaseName : name;
}

}  // namespace

std::string adapter_of(const Request& request) {
  if (request.adapters.empty()) return first_adapter(request);
  std::string all;
  for (const AdapterWeight& each : request.adapters) all += (all.empty() ? "" : "+") + each.name;
  return all;
}

void check_shares(const app::ServeOptions& options) {
  HEDDLE_CHECK(options.fairness != "key" || !options.api_key_file.empty(),
               "--fairness key: there are no keys to share by; name them with --api-key-file");
  HEDDLE_CHECK(options.fairness == "adapter" || options.adapter_weights.empty(),
               "--adapter-weight: adapters do not share the engine; add --fairness adapter");
}

void set_share(const app::ServeOptions& options, const KeyHolder* holder, Request& request) {
  if (options.fairness == "key" && holder != nullptr) {
    request.tenant = holder->name;
    request.tenant_weight = holder->weight;
  }
  if (options.fairness != "adapter") return;
  const auto weight = options.adapter_weights.find(first_adapter(request));
  if (weight != options.adapter_weights.end()) request.tenant_weight = weight->second;
}

std::string tenant_of(const app::ServeOptions& options, const Request& request) {
  if (options.fairness == "key") return request.tenant;
  return options.fairness == "adapter" ? first_adapter(request) : "";
}

}  // namespace heddle::serve
