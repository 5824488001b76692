#include "generate/fingerprint.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <span>
#include <string_view>
#include <tuple>

#include "heddle/core/device.h"
#include "heddle/core/error.h"

#include "core/digest.h"
#include "files/json_text.h"
#include "files/json_value.h"

namespace heddle::app {
namespace {

using files::JsonArray;

constexpr int64_t kMiB = int64_t{1} << 20;

/// Without a secret and without lengths: the digits are in files of answers.
class Hash {
 public:
  void add(std::string_view bytes) { hasher_.add(std::as_bytes(std::span(bytes))); }

  /// At most `count` bytes of the file, from `begin` on.
  void add_file(const std::string& path, int64_t begin, int64_t count) {
    // Opening a pipe waits for a writer, and a device has no end.
    HEDDLE_CHECK(!std::filesystem::exists(path) || std::filesystem::is_regular_file(path), path,
                 ": is not a regular file");
    std::ifstream file(path, std::ios::binary);
    file.seekg(begin);
    std::string part(static_cast<size_t>(kMiB), '\0');
    while (count > 0 && file.read(part.data(), std::min(count, kMiB)).gcount() > 0) {
      add(std::string_view(part).substr(0, static_cast<size_t>(file.gcount())));
      count -= file.gcount();
    }
    HEDDLE_CHECK(!file.bad() && file.is_open(), path, ": cannot read it");
  }

  std::string digits() const {
    const Digest digest = hasher_.digest();
    char text[33];
    std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(digest.high),
                  static_cast<unsigned long long>(digest.low));
    return text;
  }

 private:
  Hasher hasher_;
};

std::string hash_of_model(const std::vector<std::string>& files) {
  Hash hash;
  for (const std::string& path : files) {
    const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
    hash.add(std::to_string(size) + " bytes ");
    hash.add_file(path, 0, kMiB);
    hash.add_file(path, std::max<int64_t>(size - kMiB, 0), kMiB);
  }
  return hash.digits();
}

std::string hash_of_adapter(const std::string& folder) {
  Hash hash;
  if (std::filesystem::is_regular_file(folder)) {  // GGUF
    hash.add_file(folder, 0, std::numeric_limits<int64_t>::max());
    return hash.digits();
  }
  for (const char* name : {"/adapter_config.json", "/adapter_model.safetensors",
                           "/adapters.safetensors", "/tokenizer.json", "/tokenizer_config.json",
                           "/special_tokens_map.json", "/chat_template.jinja"}) {
    if (!std::filesystem::exists(folder + name)) continue;
    hash.add(name);
    hash.add_file(folder + name, 0, std::numeric_limits<int64_t>::max());
  }
  const std::string more = folder + "/additional_chat_templates";
  std::set<std::string> templates;
  if (std::filesystem::is_directory(more)) {
    for (const auto& entry : std::filesystem::directory_iterator(more)) {
      if (entry.path().extension() == ".jinja") templates.insert(entry.path().filename());
    }
  }
  for (const std::string& name : templates) {
    hash.add("/additional_chat_templates/" + name);
    hash.add_file(more + "/" + name, 0, std::numeric_limits<int64_t>::max());
  }
  return hash.digits();
}

}  // namespace

Fingerprint::Fingerprint(const GenerateOptions& options,
                         const std::vector<std::string>& model_files)
    : logprobs_(options.logprobs),
      model_(hash_of_model(model_files)),
      adapter_dir_(options.model.engine.adapter_dir) {
  const std::string& weights = options.model.engine.weights;
  if (!weights.empty()) model_ += " in " + weights;
  if (options.model.engine.activations == "int8") model_ += " with activations in int8";
  const auto& [kv_type, device] =
      std::tie(options.model.engine.kv_type, options.model.engine.device);
  if (!kv_type.empty() && kv_type != "f32") model_ += " with a cache in " + kv_type;
  if (device.empty() ? has_cuda() : device != "cpu") model_ += " on a GPU";
  for (const NamedAdapter& adapter : options.model.adapters) {
    adapters_[adapter.name] = hash_of_adapter(adapter.folder);
  }
}

const std::string& Fingerprint::hash_of(const std::string& adapter) {
  const auto [place, is_new] = adapters_.try_emplace(adapter);
  if (!is_new) return place->second;
  try {
    place->second = hash_of_adapter(find_adapter(adapter_dir_, adapter));
  } catch (const std::exception&) {  // the row ends with an error of its own
    place->second = "none";
  }
  return place->second;
}

std::string Fingerprint::of(const Row& of) {
  const Request& request = of.request;
  JsonArray row = {model_, logprobs_, request.max_tokens, files::json_array(request.stop)};
  if (request.adapter.empty()) {
    row.push_back(nullptr);
  } else {
    row.push_back(JsonArray{request.adapter, hash_of(request.adapter)});
  }
  const auto add_list = [&](const AdapterList& list) {
    for (const auto& [name, scale] : list) row.push_back(JsonArray{name, hash_of(name), scale});
  };
  add_list(request.adapters);
  for (const AdapterList& list : of.each) {
    row.emplace_back("each");
    add_list(list);
  }
  if (const AdapterMerge& merge = request.merge; merge != AdapterMerge()) {
    row.push_back(JsonArray{"merge", name(merge.method), merge.density, name(merge.majority_sign),
                            merge.seed});
  }
  if (request.text) row.emplace_back(*request.text);
  for (const Message& message : request.messages) {
    row.push_back(JsonArray{message.role, message.content});
  }
  // Rows that have none of these keep the hash that they had before there were these.
  const std::pair<const char*, const JsonValue&> values[] = {
      {"messages", request.messages_json},
      {"tools", request.tools_json},
      {"documents", request.documents_json},
      {"chat_template_kwargs", request.template_kwargs_json}};
  for (const auto& [name, value] : values) {
    if (!value.empty()) row.push_back(JsonArray{name, value.text()});
  }
  if (!request.add_generation_prompt) row.emplace_back(false);
  const SamplingOptions& sampling = request.sampling;
  if (sampling.temperature > 0.0f) {  // else the rest changes nothing
    row.push_back(JsonArray{sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p,
                            sampling.seed});
  }
  const auto add = [&row](const char* name, const auto& value, bool is_given) {
    if (is_given) row.push_back(JsonArray{name, value});
  };
  add("repetition_penalty", sampling.repetition_penalty, sampling.repetition_penalty != 1.0f);
  add("frequency_penalty", sampling.frequency_penalty, sampling.frequency_penalty != 0.0f);
  add("presence_penalty", sampling.presence_penalty, sampling.presence_penalty != 0.0f);
  for (const auto& [token, bias] : request.logit_bias) {
    row.push_back(JsonArray{"logit_bias", token, bias});
  }
  add("min_tokens", request.min_tokens, request.min_tokens != 0);
  add("stop_token_ids", files::json_array(request.stop_token_ids), !request.stop_token_ids.empty());
  add("bad_words", files::json_array(request.bad_words), !request.bad_words.empty());
  add("top_logprobs", request.top_logprobs, request.top_logprobs != 0);
  add("prompt_logprobs", true, request.prompt_logprobs);
  add("n", of.n, of.n != 1);
  if (const AnswerFormat& format = request.format; !format.is_free()) {
    row.push_back(JsonArray{"format", static_cast<int>(format.kind), format.source,
                            files::json_array(format.choices)});
  }
  if (const WantedValues& values = request.values; values.kind != WantedValues::Kind::kNone) {
    row.push_back(JsonArray{"values", static_cast<int>(values.kind), values.pooling,
                            values.normalize ? files::Json(*values.normalize) : files::Json(),
                            values.dimensions, values.activates});
  }
  Hash hash;
  hash.add(files::json_text(std::move(row)));
  return hash.digits();
}

}  // namespace heddle::app
