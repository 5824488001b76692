#include "model/adapters/medusa/medusa_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "heddle/core/error.h"

#include "files/json_text.h"
#include "files/json_value.h"
#include "files/printable.h"
#include "model/adapters/contents/finite_values.h"
#include "model/config/setting_types.h"
#include "model/config/settings.h"
#include "model/source/read_json.h"

namespace heddle::model {
namespace {

constexpr const char* kConfigFile = "/config.json";
constexpr const char* kAdapterConfig = "/adapter_config.json";
constexpr const char* kHeadsFile = "/medusa_lm_head.safetensors";
constexpr const char* kAdapterFile = "/adapter_model.safetensors";
constexpr const char* kModelFile = "/model.safetensors";
constexpr const char* kPickleFile = "/medusa_lm_head.pt";  // of Medusa itself
constexpr std::string_view kPrefix = "medusa_head.";
constexpr std::string_view kNumHeads = "medusa_num_heads";
constexpr int64_t kMaxHeads = 64, kMaxLayers = 16;

bool exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

/// Where a tensor belongs: a layer's weight or bias, or an output's weight.
struct Place {
  int64_t head = 0, layer = 0;
  bool is_linear = false, is_bias = false;
};

/// Takes a number and the dot after it.
std::optional<int64_t> take_index(std::string_view& text) {
  int64_t index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  const auto length = static_cast<size_t>(end - text.data());
  if (error != std::errc() || index < 0 || length >= text.size() || *end != '.') return {};
  text.remove_prefix(length + 1);
  return index;
}

std::optional<Place> place_of(std::string_view name) {
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  const std::optional<int64_t> head = take_index(name);
  const std::optional<int64_t> layer = head ? take_index(name) : std::nullopt;
  if (!layer) return {};
  if (name == "weight") return Place{*head, *layer};
  if (name == "linear.weight") return Place{*head, *layer, true};
  if (name == "linear.bias") return Place{*head, *layer, true, true};
  return {};
}

std::string name_of(const Place& place) {
  std::string name = std::to_string(place.head);
  name.append(".").append(std::to_string(place.layer)).append(place.is_linear ? ".linear." : ".");
  return name.append(place.is_bias ? "bias" : "weight");
}

/// 1 or 2, as a number or as text, as trainers have it. Which of both it is the tensors say.
void check_version(const files::Json& config, const std::string& path) {
  const files::Json* const version = files::find_given(config, "version");
  if (version == nullptr) return;
  const bool is_known =
      files::is_number(*version, 1) || files::is_number(*version, 2) ||
      std::ranges::any_of(std::initializer_list<const char*>{"1", "1.0", "2", "2.0"},
                          [&](const char* text) { return files::is_text(*version, text); });
  HEDDLE_CHECK(is_known, path, ": version is ", files::printable(files::json_text(*version)),
               ", expected 1 or 2");
}

int64_t extent(const JsonSettings& settings, std::string_view key, int64_t most) {
  const int64_t value = settings.extent({key, ""});
  HEDDLE_CHECK(value <= most, settings.path(), ": ", key, " is ", value, ", expected 1 to ", most);
  return value;
}

MedusaConfig read_config(const std::string& folder, const files::FolderBounds& bounds) {
  const std::string path = folder + kConfigFile;
  HEDDLE_CHECK(exists(path), folder, ": has no config.json with ", kNumHeads,
               ", which a folder of Medusa heads has");
  const files::JsonTree json = read_json(path, bounds);
  const JsonSettings settings(*json, path);
  check_version(*json, path);
  settings.mark_void({{"version", ""}});
  MedusaConfig config{.path = path,
                      .base_model = settings.text_or({"base_model_name_or_path", ""}, ""),
                      .num_heads = extent(settings, kNumHeads, kMaxHeads),
                      .num_layers = extent(settings, "medusa_num_layers", kMaxLayers)};
  config.unknown = settings.unread();
  std::erase_if(config.unknown, [](const auto& key) { return is_neutral_setting(key); });
  return config;
}

std::string tensor_file(const std::string& folder) {
  for (const char* name : {kHeadsFile, kAdapterFile, kModelFile}) {
    if (exists(folder + name)) return folder + name;
  }
  const std::string pickle = folder + kPickleFile, path = folder + kHeadsFile;
  HEDDLE_CHECK(exists(pickle), folder,
               ": has no medusa_lm_head.safetensors, adapter_model.safetensors or "
               "model.safetensors with its heads");
  throw_error(
      ErrorCode::kUnsupported, pickle,
      ": is a pickle, which heddle does not read; this converts it: python -c \"import torch, "
      "safetensors.torch as s; s.save_file({k: v.contiguous() for k, v in torch.load('",
      pickle, "', map_location='cpu', weights_only=True).items()}, '", path, "')\"");
}

}  // namespace

bool is_medusa_name(std::string_view name) { return place_of(name).has_value(); }

bool has_medusa_config(const std::string& folder, const files::FolderBounds& bounds) {
  const std::string path = folder + kConfigFile;
  if (!exists(path)) return false;
  // That of another kind is no business of ours, whatever it has.
  return read_text(path, bounds).find(kNumHeads) != std::string::npos;
}

bool has_medusa_tensors(const std::string& folder, const files::FolderBounds& bounds) {
  return !exists(folder + kHeadsFile) && has_medusa_config(folder, bounds);
}

std::shared_ptr<MedusaFiles> open_heads(const std::string& folder, const DecoderConfig& model,
                                        const files::FolderBounds& bounds) {
  if (!has_medusa_config(folder, bounds)) return nullptr;
  return std::make_shared<MedusaFiles>(folder, model, bounds);
}

MedusaFiles::MedusaFiles(const std::string& folder, const DecoderConfig& model,
                         const files::FolderBounds& bounds)
    : config_(read_config(folder, bounds)),
      file_(files::open_within(tensor_file(folder), bounds)),
      heads_(static_cast<size_t>(config_.num_heads),
             {.layers = std::vector<Layer>(static_cast<size_t>(config_.num_layers))}) {
  // The other tensors of an adapter's file are the adapter's.
  sort(file_.path() == folder + kAdapterFile && exists(folder + kAdapterConfig));
  check_complete(model);
}

StoredValues MedusaFiles::stored(const files::SafetensorsTensor& tensor) const {
  const bool is_matrix = tensor.shape.size() == 2;
  HEDDLE_CHECK(is_matrix || tensor.shape.size() == 1, file_.path(), ": tensor ",
               files::quote(tensor.name), " is ", files::shape_text(tensor.shape),
               ", expected one or two extents");
  return {.dtype = file_.dtype(tensor),
          .rows = is_matrix ? tensor.shape[0] : 1,
          .columns = tensor.shape.back(),
          .data = tensor.data.data(),
          .name = tensor.name};
}

void MedusaFiles::sort(bool is_shared) {
  for (const files::SafetensorsTensor& tensor : file_.tensors()) {
    const std::optional<Place> place = place_of(tensor.name);
    if (!place && is_shared) continue;
    const bool has_place =
        place && place->head < config_.num_heads &&
        (place->is_linear ? place->layer < config_.num_layers : place->layer == config_.num_layers);
    HEDDLE_CHECK(has_place, file_.path(), ": tensor ", files::quote(tensor.name),
                 " has no place in ", config_.num_heads, " Medusa heads of ", config_.num_layers,
                 config_.num_layers == 1 ? " layer" : " layers", " (", config_.path, ")");
    Head& head = heads_[static_cast<size_t>(place->head)];
    StoredValues* to = &head.output;
    if (place->is_linear) {
      Layer& layer = head.layers[static_cast<size_t>(place->layer)];
      to = place->is_bias ? &layer.bias : &layer.weight;
    }
    HEDDLE_CHECK(!to->is_present(), file_.path(), ": tensors ", files::quote(to->name), " and ",
                 files::quote(tensor.name), " are for the same place");
    *to = stored(tensor);
  }
}

void MedusaFiles::check_complete(const DecoderConfig& model) const {
  const auto check = [&](const StoredValues& values, const Place& place, int64_t rows) {
    const std::string name = name_of(place);
    HEDDLE_CHECK(values.is_present(), file_.path(), ": has no tensor ", files::quote(name), ", ",
                 config_.path, " has ", config_.num_heads, " heads of ", config_.num_layers,
                 config_.num_layers == 1 ? " layer" : " layers");
    HEDDLE_CHECK(values.rows == rows && values.columns == model.hidden_size, file_.path(),
                 ": tensor ", files::quote(values.name), " is [", values.rows, ", ", values.columns,
                 "], expected [", rows, ", ", model.hidden_size, "] for this model");
  };
  const bool any_output =
      std::ranges::any_of(heads_, [](const Head& head) { return head.output.is_present(); });
  for (int64_t i = 0; i < config_.num_heads; ++i) {
    const Head& head = heads_[static_cast<size_t>(i)];
    for (int64_t l = 0; l < config_.num_layers; ++l) {
      const auto& [weight, bias] = head.layers[static_cast<size_t>(l)];
      check(weight, {i, l, true}, model.hidden_size);
      check(bias, {i, l, true, true}, 1);
    }
    if (any_output) check(head.output, {i, config_.num_layers}, model.vocab_size);
  }
}

void MedusaFiles::load(std::optional<DType> rounded_to) {
  file_.load();
  const auto check = [&](const StoredValues& values) {
    if (!values.is_present()) return;
    const int64_t at = find_not_finite(values.dtype, values.bytes(), rounded_to);
    if (at >= 0) refuse_value(file_.path(), values, at, rounded_to);
  };
  for (const Head& head : heads_) {
    for (const Layer& layer : head.layers) {
      check(layer.weight);
      check(layer.bias);
    }
    check(head.output);
  }
}

std::vector<std::string> MedusaFiles::warnings() const {
  std::vector<std::string> all;
  for (const std::string& key : config_.unknown) {
    all.push_back(config_.path + ": " + files::printable(key) +
                  " is no setting of Medusa heads that heddle knows; it is left out");
  }
  return all;
}

}  // namespace heddle::model
