#include "routes/adapters.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <optional>
#include <tuple>

#include <spdlog/spdlog.h>

#include "heddle/core/error.h"

#include "api/api_error.h"
#include "api/fields.h"
#include "api/forms/receipt_json.h"
#include "api/forms/token_json.h"
#include "api/lora_scales.h"
#include "request_json/row_reader.h"

namespace heddle::serve {
namespace {

namespace fs = std::filesystem;
using app::RowReader;

constexpr auto kLoad = std::to_array<std::string_view>(
    {"lora_name", "lora_path", "load_inplace", "running", "keep_versions", "version",
     "base_model_name", "adapter_source", "revision", "api_token"});
constexpr auto kUnload = std::to_array<std::string_view>({"lora_name", "lora_int_id"});

JsonObject card(const std::string& name, const json& root, const json& parent, int64_t created,
                int64_t max_len) {
  return {
      {"id", name},   {"object", "model"}, {"created", created},       {"owned_by", "heddle"},
      {"root", root}, {"parent", parent},  {"max_model_len", max_len}, {"permission", JsonArray()}};
}

/// Absent for an adapter that the engine has not loaded yet.
std::optional<AdapterReceipt> receipt_of(Service& service, const std::string& name,
                                         ReceiptNorms norms) {
  try {
    return service.engine().adapter_receipt(name, norms);
  } catch (const UnknownAdapter&) {  // one of the folder that no request has named
    return std::nullopt;
  }
}

/// The older ones that requests may name.
JsonArray versions_of(const Metrics::Now& now, const std::string& name) {
  JsonArray versions;
  for (const AdapterState& state : now.adapters) {
    if (state.name == name + "@" + std::to_string(state.version)) versions.push_back(state.version);
  }
  return versions;
}

/// An adapter as lists of models have it.
struct ListedAdapter {
  std::string name{};
  std::string known_as{};  // to the engine
  int64_t created = 0;     // seconds since 1970; 0: not known
  bool is_added = false;
};

ListedAdapter listed(const std::string& name, const ServedAdapter& adapter) {
  return {.name = name, .known_as = name, .created = adapter.created, .is_added = adapter.is_added};
}

ListedAdapter listed(const FetchedName& adapter) {
  return {.name = adapter.name, .known_as = adapter.known_as};
}

/// The adapter of this machine, or of a source and in memory. Throws ApiError where none has the
/// name.
ListedAdapter find_listed(const Service& service, const std::string& name) {
  const auto place = service.names().adapters().find(name);
  if (place != service.names().adapters().end()) return listed(name, place->second);
  for (const FetchedName& each : service.fetched_names()) {
    if (each.name == name) return listed(each);
  }
  throw no_such_model(name);
}

JsonObject adapter_card(Service& service, const ListedAdapter& adapter) {
  const std::string& known_as = adapter.known_as;
  JsonObject one = card(adapter.name, json(adapter.name), json(service.names().base()),
                        adapter.created, service.engine().options().max_context);
  const Metrics::Now now = service.now();
  const AdapterState* const known = now.find(known_as);
  JsonObject& lora = one["lora"].emplace_object();
  lora["pinned"] = adapter.is_added;
  lora["state"] = known != nullptr && known->is_in_memory ? "in memory" : "known";
  lora["bytes"] = known == nullptr ? json() : json(known->num_bytes);
  lora["version"] = known == nullptr || known->version == 0 ? json() : json(known->version);
  lora["versions"] = versions_of(now, known_as);
  if (const auto receipt = receipt_of(service, known_as, ReceiptNorms::kAsKnown)) {
    lora["digest"] = receipt->digest;
  }
  return one;
}

JsonObject base_card(Service& service, const std::string& name) {
  return card(name, json(service.names().base()), nullptr, 0,
              service.engine().options().max_context);
}

std::string required(const json& body, const char* field) {
  const json* const value = files::find_member(body, field);
  const bool is_given = value != nullptr && value->is_string() && !files::text_of(*value).empty();
  if (!is_given) throw invalid_input(std::string(field) + " is missing or not a string", field);
  return std::string(files::text_of(*value));
}

ApiError not_loaded(const std::string& name) {
  return {404, "NotFoundError", "The lora adapter '" + name + "' cannot be found.", "lora_name"};
}

HttpResponse done(const std::string& name, const char* what) {
  return {.content_type = "text/plain",
          .body = "Success: LoRA adapter '" + name + "' " + what + " successfully."};
}

/// With its receipt in the second line.
HttpResponse done_loading(const std::string& name, const AdapterReceipt& receipt) {
  const std::string summary = receipt.summary();
  spdlog::info("adapter {}: {}", name, summary);
  HttpResponse response = done(name, "added");
  response.body += "\n" + summary;
  return response;
}

/// A name that requests can say and a log line can show.
void check_name(const std::string& name) {
  constexpr size_t kLongest = 256;
  const bool is_wrong =
      name.size() > kLongest || name.find('\0') != std::string::npos || name == app::kBaseName;
  if (is_wrong)
    throw invalid_input("lora_name must not be \"base\", hold NUL or be longer than 256 bytes",
                        "lora_name");
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20)
      throw invalid_input("lora_name has control characters", "lora_name");
  }
}

struct Load : NewAdapter {
  std::string path{};                // empty: it goes back to a version
  SourceChoice from{};               // what `path` is of
  std::optional<int64_t> version{};  // that it goes back to, in place of a path
};

/// Throws ApiError where no adapter may have the name. Whether one that was loaded has it.
bool check_new(const NewAdapter& load, const Service& service) {
  check_name(load.name);
  const ServedNames& names = service.names();
  if (names.is_base(load.name)) {
    throw invalid_input(
        "'" + load.name + "' is a name of the base model; load the adapter under another",
        "lora_name");
  }
  const auto known = names.adapters().find(load.name);
  const bool is_added = known != names.adapters().end() && known->second.is_added;
  if (is_added && !load.replaces) {
    throw invalid_input("The lora adapter '" + load.name + "' has already been loaded.",
                        "lora_name");
  }
  return is_added;
}

/// Throws ApiError where another adapter of --lora-root has the name of one that is new. `path`: of
/// that, empty for one that comes from memory.
void check_root(const NewAdapter& load, bool is_added, const std::string& path,
                const Service& service) {
  const std::string in_root = is_added ? std::string() : service.names().in_root(load.name);
  std::error_code error;
  if (in_root.empty() || load.replaces || fs::equivalent(in_root, path, error)) return;
  throw invalid_input("'" + load.name +
                          "' is another adapter of --lora-root; load it under another name, or " +
                          "with load_inplace",
                      "lora_name");
}

Load read_load(const std::string& text, Service& service) {
  files::JsonTree tree = parse_body(text);
  json& body = *tree;
  const std::pair<const char*, json> only[] = {{"pinned", json(true)}, {"scale", json(1)}};
  for (const auto& [field, value] : only) {
    const json given = take(body, field);
    if (!given.is_null() && given != value) {
      throw invalid_input(
          std::string(field) + ": only " + files::json_text(value) + " is supported", field);
    }
  }
  check_fields(body, kLoad, service.options().ignore_unknown_fields);
  Load load;
  load.name = required(body, "lora_name");
  const RowReader row(body, "request");
  if (row.find("version") != nullptr) {
    load.version = row.integer("version", 1, 1, std::numeric_limits<int64_t>::max());
    if (row.find("lora_path") != nullptr) {
      throw invalid_input("version is one that the server has kept, so it has no lora_path",
                          "version");
    }
  } else {
    load.path = required(body, "lora_path");
  }
  if (row.find("keep_versions") != nullptr) {
    load.keep_versions = row.integer("keep_versions", 0, 0, kMaxKeptVersions);
  }
  load.replaces = row.flag("load_inplace", load.version.has_value());
  if (row.find("running") != nullptr) {
    load.running = read_running(row.optional_text("running"), load.replaces);
  }
  load.from = read_source(row);
  const std::string revision = row.optional_text("revision");
  if (!revision.empty()) load.path += "@" + revision;
  if (!load.from.is_remote() && !(revision.empty() && load.from.token.empty())) {
    throw invalid_input("revision and api_token are for an adapter_source, hub or s3",
                        "adapter_source");
  }
  const bool is_added = check_new(load, service);
  if (load.version) {
    if (!is_added) throw not_loaded(load.name);
    return load;
  }
  if (!load.from.is_remote()) load.path = path_in_root(service.names().lora_root(), load.path);
  check_root(load, is_added, load.path, service);
  return load;
}

ApiError load_failure(const Error& error, const Service& service) {
  const std::string message = service.names().without_folders(error.what());
  switch (error.code()) {
    case ErrorCode::kOutOfMemory: return {507, "InsufficientStorage", message, "lora_path"};
    case ErrorCode::kCuda: return unavailable(message);
    default: return invalid_input(message, "lora_path");
  }
}

}  // namespace

RunningRequests read_running(const std::string& word, bool replaces) {
  if (word != "finish" && word != "switch") {
    throw invalid_input(
        "running is " + files::json_text(json(word)) + R"(, expected "finish" or "switch")",
        "running");
  }
  if (!replaces) throw invalid_input("running needs load_inplace", "running");
  return word == "switch" ? RunningRequests::kSwitch : RunningRequests::kFinish;
}

std::string path_in_root(const std::string& root, const std::string& path) {
  const ApiError refused =
      invalid_input("lora_path does not lead to an adapter inside --lora-root", "lora_path");
  if (root.empty())
    throw invalid_input("the server has no --lora-root to load adapters from", "lora_path");
  if (path.find('\0') != std::string::npos) throw refused;
  std::error_code error;
  const fs::path base = fs::canonical(root, error);
  if (error) throw refused;
  const fs::path whole = fs::path(path).is_absolute() ? fs::path(path) : base / path;
  const fs::path real = fs::canonical(whole, error);
  if (error) throw refused;
  const fs::path inside = real.lexically_relative(base);
  const bool is_inside = !inside.empty() && inside != "." && *inside.begin() != "..";
  // A link of the root itself may lead into a cache of the hub; find_adapter says whether it does.
  fs::path entry = whole.lexically_normal();
  if (!entry.has_filename()) entry = entry.parent_path();
  const bool is_entry = !is_inside && real != base && entry.parent_path() == base;
  if (!is_inside && !is_entry) throw refused;
  const fs::path place = is_inside ? real : entry;
  try {
    return find_adapter(place.parent_path().string(), place.filename().string());
  } catch (const Error&) {
    throw refused;
  }
}

HttpResponse list_models(Service& service, const ShowsAdapter& shows) {
  JsonObject list{{"object", "list"}};
  JsonArray& cards = list["data"].emplace_array();
  for (const std::string& name : service.names().listed_bases()) {
    cards.push_back(base_card(service, name));
  }
  for (const auto& [name, adapter] : service.names().adapters()) {
    if (shows(name)) cards.push_back(adapter_card(service, listed(name, adapter)));
  }
  for (const FetchedName& adapter : service.fetched_names()) {
    if (shows(adapter.name)) cards.push_back(adapter_card(service, listed(adapter)));
  }
  return {.body = files::json_text(list)};
}

boost::asio::awaitable<HttpResponse> show_model(Service& service, const std::string& name) {
  const ServedNames& names = service.names();
  if (names.is_base(name)) {
    const bool is_listed =
        std::ranges::find(names.listed_bases(), name) != names.listed_bases().end();
    co_return HttpResponse{
        .body = files::json_text(base_card(service, is_listed ? name : names.base()))};
  }
  const ListedAdapter adapter = find_listed(service, name);
  JsonObject one = adapter_card(service, adapter);
  const auto measure = [&service, known_as = adapter.known_as] {
    return receipt_of(service, known_as, ReceiptNorms::kComputed);
  };
  if (const auto receipt = co_await service.run_on(Service::Worker::kLoads, measure)) {
    one["lora"].as_object()["receipt"] = receipt_json(*receipt);
  }
  co_return HttpResponse{.body = files::json_text(one)};
}

/// The name stands for an older version again.
boost::asio::awaitable<HttpResponse> roll_back(Service& service, const Load& load) {
  try {
    const auto body = [&load](Engine& engine) {
      if (load.keep_versions)
        engine.keep_versions(load.name, static_cast<int>(*load.keep_versions));
      engine.roll_back_adapter(load.name, *load.version, load.running);
      return true;
    };
    co_await service.call(body);
  } catch (const UnknownAdapter& error) {
    throw ApiError{404, "NotFoundError", error.what(), "version"};
  } catch (const Error& error) {
    throw invalid_input(error.what(), "version");
  }
  co_return done(load.name, "rolled back");
}

/// Prepares the source, a path or a content, in the thread of loads, and gives it the name.
template <class Source>
boost::asio::awaitable<AdapterReceipt> load_from(Service& service, const Load& load,
                                                 const Source& source) {
  try {
    const auto prepare = [&service, &source] {
      return std::make_shared<PreparedAdapter>(service.engine().prepare_adapter(source));
    };
    const std::shared_ptr<PreparedAdapter> adapter =
        co_await service.run_on(Service::Worker::kLoads, prepare);
    const auto add = [load, adapter](Engine& engine) {
      if (load.keep_versions)
        engine.keep_versions(load.name, static_cast<int>(*load.keep_versions));
      return load.replaces ? engine.replace_adapter(load.name, std::move(*adapter), load.running)
                           : engine.add_adapter(load.name, std::move(*adapter));
    };
    const AdapterInfo info = co_await service.call(add);
    for (const std::string& what : info.warnings) spdlog::warn("warning: {}", what);
    service.names().add(load.name, {.path = load.path, .is_added = true});
    co_return info.receipt;
  } catch (const Error& error) {
    throw load_failure(error, service);
  }
}

boost::asio::awaitable<HttpResponse> load_content(Service& service, const NewAdapter& adapter,
                                                  const AdapterContent& content) {
  check_root(adapter, check_new(adapter, service), {}, service);
  const Load load{adapter};
  const AdapterReceipt receipt = co_await load_from(service, load, content);
  co_return done_loading(load.name, receipt);
}

boost::asio::awaitable<HttpResponse> load_adapter(Service& service, const std::string& text) {
  Load load = read_load(text, service);
  if (load.version) co_return co_await roll_back(service, load);
  fetch::AdapterLease lease;  // until its weights are in memory
  if (load.from.is_remote()) {
    std::tie(lease, load.path) = co_await service.fetch_adapter(load.path, load.from);
  }
  co_await load_from(service, load, load.path);
  const auto measure = [&service, name = load.name] {
    return receipt_of(service, name, ReceiptNorms::kComputed);
  };
  const auto receipt = co_await service.run_on(Service::Worker::kLoads, measure);
  co_return receipt ? done_loading(load.name, *receipt) : done(load.name, "added");
}

HttpResponse show_scales(Service& service) {
  JsonArray list;
  for (const auto& [id, name] : service.names().ids()) {
    list.push_back(
        JsonObject{{"id", id}, {"path", name}, {"scale", service.names().default_scale(name)}});
  }
  return {.body = files::json_text(json(std::move(list)))};
}

HttpResponse set_scales(Service& service, const std::string& body) {
  const std::map<int64_t, std::string> names = service.names().ids();
  AdapterList adapters;
  for (const auto& [id, scale] : read_lora_scales(body)) {
    const auto place = names.find(id);
    if (place == names.end()) throw invalid_input("no adapter has id " + std::to_string(id), "id");
    if (scale != 0) adapters.push_back({place->second, scale});
  }
  service.names().set_defaults(std::move(adapters));
  return {.body = files::json_text(JsonObject{{"success", true}})};
}

std::string unload_name(const Service& service, const std::string& text) {
  files::JsonTree tree = parse_body(text);
  json& body = *tree;
  check_fields(body, kUnload, service.options().ignore_unknown_fields);
  return required(body, "lora_name");
}

boost::asio::awaitable<HttpResponse> unload_adapter(Service& service, const std::string& name) {
  if (!service.names().remove(name)) throw not_loaded(name);
  const auto remove = [name](Engine& engine) { return engine.remove_adapter(name); };
  co_await service.call(remove);
  co_return done(name, "removed");
}

}  // namespace heddle::serve
