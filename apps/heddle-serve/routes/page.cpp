#include "routes/page.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "api/api_error.h"
#include "api/forms/token_json.h"
#include "page_files.h"
#include "service/adapter_note.h"

namespace heddle::serve {
namespace {

/// No file from elsewhere, no script but those of the page, no markup made of text, in no frame of
/// another page.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

const char* content_type(std::string_view path) {
  if (path.ends_with(".css")) return "text/css; charset=utf-8";
  if (path.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (path.ends_with(".svg")) return "image/svg+xml";
  return path.ends_with(".html") ? "text/html; charset=utf-8" : "text/plain; charset=utf-8";
}

JsonObject row_json(const RowProgress& row) {
  return {{"id", row.id},
          {"adapter", row.adapter},
          {"phase", name(row.phase)},
          {"is_parked", row.is_parked},
          {"is_paused", row.is_paused},
          {"prompt_tokens", row.prompt_tokens},
          {"cached_tokens", row.cached_tokens},
          {"computed_tokens", row.computed_tokens},
          {"answer_tokens", row.answer_tokens}};
}

JsonArray adapter_states(Service& service, const Metrics::Now& now) {
  JsonArray adapters;
  for (const auto& [name, adapter] : service.names().adapters()) {
    const AdapterState* const known = now.find(name);
    adapters.push_back(JsonObject{{"name", name},
                                  {"in_memory", known != nullptr && known->is_in_memory},
                                  {"bytes", known == nullptr ? 0 : known->num_bytes},
                                  {"rows", service.rows_of(name)}});
  }
  return adapters;
}

JsonArray tenant_states(const Metrics::Now& now) {
  JsonArray tenants;
  for (const auto& [name, use] : now.tenants) {
    tenants.push_back(JsonObject{{"name", name},
                                 {"weight", use.weight},
                                 {"waiting", use.num_waiting},
                                 {"running", use.num_running},
                                 {"prompt_tokens", use.prompt_tokens},
                                 {"answer_tokens", use.answer_tokens}});
  }
  return tenants;
}

}  // namespace

std::optional<HttpResponse> page_file(const std::string& path) {
  const std::string_view file = path == "/" ? std::string_view("/page/index.html") : path;
  const auto place = std::ranges::find(kPageFiles, file, &PageFile::path);
  if (place == std::end(kPageFiles)) return std::nullopt;
  return HttpResponse{.content_type = content_type(file),
                      .body = std::string(place->text),
                      .headers = {{"Content-Security-Policy", kPolicy},
                                  {"X-Content-Type-Options", "nosniff"},
                                  {"Cache-Control", "no-cache"},
                                  {"Referrer-Policy", "no-referrer"}}};
}

HttpResponse page_state(Service& service) {
  const Metrics::Now now = service.now();
  const ModelInfo& model = service.engine().model();
  const EngineOptions& options = service.engine().options();
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
                   {"prefill_tokens", now.stats.prefill_tokens},
                   {"generated_tokens", now.stats.generated_tokens},
                   {"adapter_bytes", now.load.adapter_bytes},
                   {"weight_bytes", model.weight_bytes},
                   {"kv_bytes", options.kv_memory},
                   {"device", options.device},
                   {"max_batch", options.max_batch},
                   {"max_context", options.max_context}};
  JsonArray& rows = state["rows"].emplace_array();
  for (const RowProgress& row : now.rows) rows.push_back(row_json(row));
  state["adapters"] = adapter_states(service, now);
  state["tenants"] = tenant_states(now);
  return {.body = files::json_text(state)};
}

boost::asio::awaitable<HttpResponse> adapter_examples(Service& service, const std::string& name) {
  const auto& adapters = service.names().adapters();
  const auto known = adapters.find(name);
  std::string folder = known == adapters.end() ? service.names().in_root(name) : known->second.path;
  if (known == adapters.end() && folder.empty()) throw no_such_model(name);
  const auto read = [folder] { return read_adapter_note(folder); };
  const AdapterNote note = co_await service.run_on(Service::Worker::kLoads, read);
  co_return HttpResponse{
      .body = files::json_text(JsonObject{
          {"adapter", name}, {"about", note.about}, {"prompts", files::json_array(note.prompts)}})};
}

}  // namespace heddle::serve
