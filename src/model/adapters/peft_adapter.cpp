#include "model/adapters/peft_adapter.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "heddle/core/error.h"
#include "heddle/ops/lora.h"

#include "files/printable.h"

namespace heddle::model {
namespace {

constexpr const char* kConfigFile = "/adapter_config.json";
constexpr const char* kTensorFile = "/adapter_model.safetensors";

std::string module_name(int64_t layer, const LinearModule& module) {
  return "model.layers." + std::to_string(layer) + '.' + module.name;
}

/// What the name of an adapter's tensor says.
struct TensorName {
  int64_t layer;
  const LinearModule* module;  // in kLinearModules
  bool is_b;
};

bool consume(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}
bool consume_end(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

/// base_model.model.model.layers.<layer>.<module>.lora_<A|B>[.default].weight, or nothing.
std::optional<TensorName> parse_tensor_name(std::string_view text) {
  if (!consume(text, "base_model.model.model.layers.")) return std::nullopt;
  if (!consume_end(text, ".weight")) return std::nullopt;
  (void)consume_end(text, ".default");  // the adapter's name, which some tools leave in
  const bool is_a = consume_end(text, ".lora_A");
  if (!is_a && !consume_end(text, ".lora_B")) return std::nullopt;

  const std::string_view digits = text.substr(0, text.find('.'));
  const bool is_number = !digits.empty() && digits.size() <= 9 &&
                         digits.find_first_not_of("0123456789") == digits.npos &&
                         (digits.size() == 1 || digits[0] != '0');
  if (!is_number || digits.size() == text.size()) return std::nullopt;
  text.remove_prefix(digits.size() + 1);
  for (const LinearModule& module : kLinearModules) {
    if (module.name == text) return TensorName{std::stoll(std::string(digits)), &module, !is_a};
  }
  return std::nullopt;
}

std::string tensor_name(int64_t layer, const LinearModule& module, const char* half) {
  return "base_model.model." + module_name(layer, module) + '.' + half + ".weight";
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

AdapterConfig read_config(const std::string& path) {
  return parse_adapter_config(text_of(files::MappedFile(path).bytes()), path);
}

/// The tensors of one pair while a file is read.
struct Halves {
  const files::SafetensorsTensor *a = nullptr, *b = nullptr;
};
using HalvesByModule = std::map<std::pair<int64_t, const LinearModule*>, Halves>;

HalvesByModule sort_tensors(const files::SafetensorsFile& file) {
  HalvesByModule modules;
  for (const files::SafetensorsTensor& tensor : file.tensors()) {
    const auto parsed = parse_tensor_name(tensor.name);
    if (!parsed) {
      throw_error(ErrorCode::kUnsupported, file.path(), ": tensor ", files::quote(tensor.name),
                  " is none of lora_A and lora_B of a layer's q_proj, k_proj, v_proj, o_proj, "
                  "gate_proj, up_proj, down_proj, qkv_proj or gate_up_proj");
    }
    Halves& halves = modules[{parsed->layer, parsed->module}];
    const files::SafetensorsTensor*& half = parsed->is_b ? halves.b : halves.a;
    HEDDLE_CHECK(half == nullptr, file.path(), ": tensors ", files::quote(half->name), " and ",
                 files::quote(tensor.name), " are for the same place");
    half = &tensor;
  }
  HEDDLE_CHECK(!modules.empty(), file.path(), ": holds no tensor");
  return modules;
}

void check_halves(const std::string& path, int64_t layer, const LinearModule& module,
                  const Halves& halves) {
  HEDDLE_CHECK(halves.a != nullptr, path, ": tensor ", files::quote(halves.b->name),
               " has no partner ", files::quote(tensor_name(layer, module, "lora_A")));
  HEDDLE_CHECK(halves.b != nullptr, path, ": tensor ", files::quote(halves.a->name),
               " has no partner ", files::quote(tensor_name(layer, module, "lora_B")));
  for (const files::SafetensorsTensor* half : {halves.a, halves.b}) {
    HEDDLE_CHECK(half->shape.size() == 2 && half->shape[0] > 0 && half->shape[1] > 0, path,
                 ": tensor ", files::quote(half->name), " has shape ",
                 files::shape_text(half->shape), ", expected two extents of 1 or more");
  }
  HEDDLE_CHECK(halves.a->shape[0] == halves.b->shape[1], path, ": tensor ",
               files::quote(halves.a->name), " has shape ", files::shape_text(halves.a->shape),
               ", rank ", halves.a->shape[0], ", its partner lora_B ",
               files::shape_text(halves.b->shape), ", rank ", halves.b->shape[1]);
}

}  // namespace

PeftAdapter::PeftAdapter(const std::string& folder)
    : path_(folder), config_(read_config(folder + kConfigFile)), tensors_(folder + kTensorFile) {
  read_pairs();
}

PeftAdapter::PeftAdapter(std::string_view config_json, std::span<const std::byte> safetensors,
                         const std::string& name)
    : path_(name),
      config_(parse_adapter_config(config_json, name + kConfigFile)),
      tensors_(safetensors, name + kTensorFile) {
  read_pairs();
}

void PeftAdapter::read_pairs() {
  const std::string& path = tensors_.path();
  for (const auto& [place, halves] : sort_tensors(tensors_)) {
    const auto [layer, linear] = place;
    check_halves(path, layer, *linear, halves);
    const std::string module = module_name(layer, *linear);
    const int64_t rank = halves.a->shape[0], expected = config_.rank_of(module);
    HEDDLE_CHECK(rank == expected, path, ": tensor ", files::quote(halves.a->name), " has rank ",
                 rank, ", ", config_.path, " gives it rank ", expected);
    if (rank > kMaxLoraRank) {
      throw_error(ErrorCode::kUnsupported, path, ": tensor ", files::quote(halves.a->name),
                  " has rank ", rank, ", supported: up to ", kMaxLoraRank);
    }
    HEDDLE_CHECK(
        config_.targets(module), path, ": tensor ", files::quote(halves.a->name),
        " is for a module that target_modules, exclude_modules and layers_to_transform of ",
        config_.path, " leave out");
    const DType dtype = tensors_.dtype(*halves.a);
    if (tensors_.dtype(*halves.b) != dtype) {
      throw_error(ErrorCode::kUnsupported, path, ": tensor ", files::quote(halves.a->name), " is ",
                  dtype, ", its partner lora_B ", tensors_.dtype(*halves.b),
                  ", supported: one type for both");
    }
    pairs_.push_back({.layer = layer,
                      .module = linear,
                      .projection = linear->first,
                      .rank = rank,
                      .in_features = halves.a->shape[1],
                      .out_features = halves.b->shape[0],
                      .scale = config_.scale_of(module),
                      .dtype = dtype,
                      .a = halves.a->data.data(),
                      .b = halves.b->data.data()});
  }
}

void PeftAdapter::check_fits(const ModelDims& dims) const {
  const std::string& path = tensors_.path();
  auto next = pairs_.begin();
  for (int64_t layer = 0; layer < dims.num_layers; ++layer) {
    for (const LinearModule& linear : kLinearModules) {
      if (next != pairs_.end() && next->layer == layer && next->module == &linear) {
        if (!dims.has(linear)) {
          throw_error(ErrorCode::kUnsupported, path, ": tensor ",
                      files::quote(tensor_name(layer, linear, "lora_A")),
                      " is for a linear layer that the model does not have");
        }
        const auto [in, out] = dims.of(linear);
        HEDDLE_CHECK(next->in_features == in, path, ": tensor ",
                     files::quote(tensor_name(layer, linear, "lora_A")), " takes ",
                     next->in_features, " features, the model's layer has ", in);
        HEDDLE_CHECK(next->out_features == out, path, ": tensor ",
                     files::quote(tensor_name(layer, linear, "lora_B")), " gives ",
                     next->out_features, " features, the model's layer has ", out);
        ++next;
        continue;
      }
      if (!dims.has(linear)) continue;
      const std::string module = module_name(layer, linear);
      HEDDLE_CHECK(!config_.target_modules || !config_.targets(module), path, ": has no tensor ",
                   files::quote(tensor_name(layer, linear, "lora_A")), ", yet target_modules of ",
                   config_.path, " is ", config_.target_modules->text, " and the model has ",
                   dims.num_layers, " layers");
    }
  }
  HEDDLE_CHECK(next == pairs_.end(), path, ": tensor ",
               files::quote(tensor_name(next->layer, *next->module, "lora_A")), " is for layer ",
               next->layer, ", the model has ", dims.num_layers, " layers");
}

}  // namespace heddle::model
