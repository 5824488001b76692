#include "routes/page.h"

#include "api/token_json.h"
#include "page_files.h"

namespace heddle::serve {
namespace {

/// No file from elsewhere, no script but page.js, in no frame of another page.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

}  // namespace

std::optional<HttpResponse> page_file(const std::string& path) {
  HttpResponse response{.headers = {{"Content-Security-Policy", kPolicy},
                                    {"Cache-Control", "no-cache"},
                                    {"Referrer-Policy", "no-referrer"}}};
  if (path == "/") {
    response.content_type = "text/html; charset=utf-8";
    response.body = kIndexHtml;
  } else if (path == "/page/page.css") {
    response.content_type = "text/css; charset=utf-8";
    response.body = kPageCss;
  } else if (path == "/page/page.js") {
    response.content_type = "text/javascript; charset=utf-8";
    response.body = kPageJs;
  } else {
    return std::nullopt;
  }
  return response;
}

HttpResponse page_state(Service& service) {
  const Metrics::Now now = service.now();
  JsonObject state{{"num_running", now.num_running},
                   {"num_waiting", now.num_waiting},
                   {"num_pages", now.load.num_pages},
                   {"num_free_pages", now.load.num_free_pages},
                   {"num_cached_pages", now.load.num_cached_pages},
                   {"num_host_pages", now.load.num_host_pages},
                   {"num_disk_pages", now.load.num_disk_pages},
                   {"num_parked", now.load.num_parked},
                   {"prefix_tokens", now.stats.prefix_tokens},
                   {"cached_tokens", now.stats.cached_tokens},
                   {"host_tokens", now.stats.host_tokens},
                   {"disk_tokens", now.stats.disk_tokens},
                   {"parkings", now.stats.parkings},
                   {"generated_tokens", now.stats.generated_tokens},
                   {"adapter_bytes", now.load.adapter_bytes}};
  JsonArray& adapters = state["adapters"].emplace_array();
  for (const auto& [name, adapter] : service.names().adapters()) {
    const AdapterState* const known = now.find(name);
    adapters.push_back(JsonObject{{"name", name},
                                  {"in_memory", known != nullptr && known->is_in_memory},
                                  {"bytes", known == nullptr ? 0 : known->num_bytes},
                                  {"rows", service.rows_of(name)}});
  }
  JsonArray& tenants = state["tenants"].emplace_array();
  for (const auto& [name, use] : now.tenants) {
    tenants.push_back(JsonObject{{"name", name},
                                 {"weight", use.weight},
                                 {"waiting", use.num_waiting},
                                 {"running", use.num_running},
                                 {"prompt_tokens", use.prompt_tokens},
                                 {"answer_tokens", use.answer_tokens}});
  }
  return {.body = files::json_text(state)};
}

}  // namespace heddle::serve
