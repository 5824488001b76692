#include "routes/adapter_bodies.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <openssl/evp.h>

#include "api/api_error.h"
#include "api/fields.h"
#include "api/forms/token_json.h"
#include "files/percent.h"
#include "request_json/row_reader.h"

namespace heddle::serve {
namespace {

using app::RowReader;

AdapterContent content_of(const std::string& name, std::string config, std::string weights) {
  const auto owner = std::make_shared<const std::string>(std::move(weights));
  return {.name = "adapter " + name,
          .config_json = std::move(config),
          .safetensors = std::as_bytes(std::span(*owner)),
          .owner = owner};
}

std::string decoded(std::string_view text) {
  constexpr size_t kMost = size_t{1} << 30;
  const ApiError wrong = invalid_input("serialized_tensors is not base64", "serialized_tensors");
  if (text.empty() || text.size() % 4 != 0 || text.size() > kMost) throw wrong;
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  if (size < 0) throw wrong;
  const size_t padding = text.size() - text.find_last_not_of('=') - 1;
  bytes.resize(static_cast<size_t>(size) - std::min<size_t>(padding, 2));
  return bytes;
}

/// The whole of a text of digits; nothing where it is none, or more than versions are kept.
std::optional<int64_t> count_of(const std::string& text) {
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const bool is_count = error == std::errc() && end == text.data() + text.size() && count >= 0 &&
                        count <= kMaxKeptVersions;
  return is_count ? std::optional(count) : std::nullopt;
}

/// A pickle of protocol 2 or later, in which PyTorch's tensors come.
bool is_pickle(std::string_view bytes) {
  return bytes.size() > 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5;
}

}  // namespace

BroughtAdapter read_weights(const std::string& query, std::string body) {
  NewAdapter load;
  std::string config, running;
  std::string_view rest = query;
  while (!rest.empty()) {
    const std::string_view field = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), field.size() + 1));
    const size_t equals = std::min(field.find('='), field.size());
    const std::string_view key = field.substr(0, equals);
    const std::string value =
        files::percent_decoded(field.substr(std::min(equals + 1, field.size())));
    const std::optional<int64_t> count = count_of(value);
    if (key == "lora_name") {
      load.name = value;
    } else if (key == "adapter_config") {
      config = value;
    } else if (key == "load_inplace" && (value == "true" || value == "false")) {
      load.replaces = value == "true";
    } else if (key == "running") {
      running = value;
    } else if (key == "keep_versions" && count) {
      load.keep_versions = count;
    } else {
      throw invalid_input("the query has '" + files::percent_decoded(field) +
                              "', expected lora_name=NAME, adapter_config=JSON, load_inplace=true, "
                              "running=finish " +
                              "or switch, keep_versions=0 to " + std::to_string(kMaxKeptVersions),
                          "query");
    }
  }
  if (load.name.empty()) throw invalid_input("the query has no lora_name=NAME", "lora_name");
  if (!running.empty()) load.running = read_running(running, load.replaces);
  return {load, content_of(load.name, std::move(config), std::move(body))};
}

BroughtAdapter read_tensors(const std::string& text, bool ignores_unknown) {
  constexpr auto kFields = std::to_array<std::string_view>(
      {"lora_name", "config_dict", "serialized_tensors", "load_inplace", "running"});
  files::JsonTree tree = parse_body(text);
  json& body = *tree;
  if (!take(body, "load_format").is_null()) {
    throw invalid_input("load_format is not supported: tensors come one by one", "load_format");
  }
  const json pinned = take(body, "pinned");  // an adapter that was loaded by name always is
  if (!pinned.is_null() && !pinned.is_bool())
    throw invalid_input("pinned is not a boolean", "pinned");
  const json added = take(body, "added_tokens_config");
  if (!added.is_null() && !(added.is_object() && added.get_object().empty())) {
    throw invalid_input("added_tokens_config is not supported: tokens are the model's",
                        "added_tokens_config");
  }
  check_fields(body, kFields, ignores_unknown);
  const RowReader row(body, "request");
  NewAdapter load{.name = row.required_text("lora_name"),
                  .replaces = row.flag("load_inplace", false)};
  if (row.find("running") != nullptr) {
    load.running = read_running(row.optional_text("running"), load.replaces);
  }
  const json* const config = row.find("config_dict");
  if (config == nullptr || !config->is_object()) {
    throw invalid_input("config_dict is missing or not an object", "config_dict");
  }
  std::string weights = decoded(row.required_text("serialized_tensors"));
  if (is_pickle(weights)) {
    throw invalid_input(
        "serialized_tensors is a pickle, which could run anything and is not read; send the base64 "
        "of safetensors.torch.save(tensors)",
        "serialized_tensors");
  }
  return {load, content_of(load.name, files::json_text(*config), std::move(weights))};
}

}  // namespace heddle::serve
