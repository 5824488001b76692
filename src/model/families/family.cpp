#include "model/families/family.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "heddle/core/error.h"

#include "files/json_tree.h"
#include "files/json_value.h"
#include "files/printable.h"
#include "model/families/families.h"

namespace heddle::model {
namespace {

/// Far above any model; traits of each layer are made before its tensors are looked for.
constexpr int64_t kMaxLayers = 1 << 16;

/// What llama.cpp calls the text halves of models that take more than text.
constexpr std::array<std::pair<std::string_view, const Family*>, 2> kGgufTextHalves = {
    {{"qwen2vl", &kQwen2}, {"qwen3vl", &kQwen3}}};

void read_extents(const ModelFacts& facts, DecoderConfig& config) {
  const Settings& s = facts.settings;
  const SettingName q_heads{"num_attention_heads", "attention.head_count"};
  const SettingName kv_heads{"num_key_value_heads", "attention.head_count_kv"};
  const SettingName head_dim{"head_dim", "attention.key_length"};
  const SettingName value_length{"", "attention.value_length"};
  const SettingName epsilon{"rms_norm_eps", "attention.layer_norm_rms_epsilon"};
  const SettingName layers{"num_hidden_layers", "block_count"};
  config.num_layers = s.extent(layers);
  HEDDLE_CHECK(config.num_layers <= kMaxLayers, s.where(layers), " is ", config.num_layers,
               ", expected up to ", kMaxLayers);
  config.hidden_size = s.extent({"hidden_size", "embedding_length"});
  config.intermediate_size = s.extent({"intermediate_size", "feed_forward_length"});
  config.num_q_heads = s.extent(q_heads);
  config.num_kv_heads = s.extent_or(kv_heads, config.num_q_heads);
  HEDDLE_CHECK(config.num_q_heads % config.num_kv_heads == 0, s.where(q_heads), " is ",
               config.num_q_heads, ", expected a multiple of ", s.key(kv_heads), " = ",
               config.num_kv_heads);
  config.head_dim = s.extent_or(head_dim, config.hidden_size / config.num_q_heads);
  HEDDLE_CHECK(config.head_dim % 2 == 0 && config.head_dim >= 2 && config.head_dim <= 256, s.path(),
               ": heads have ", config.head_dim, " elements, expected an even number up to 256");
  const int64_t value_dim = s.has(value_length) ? s.integer(value_length) : config.head_dim;
  HEDDLE_CHECK(value_dim == config.head_dim, s.where(value_length), " is ", value_dim,
               ", expected the key's length ", config.head_dim);
  config.context_length = s.extent({"max_position_embeddings", "context_length"});
  config.vocab_size =
      s.is_gguf() ? facts.weights.tensor("token_embd.weight").rows : s.extent({"vocab_size", ""});
  const double given = s.is_gguf() ? s.number(epsilon) : s.number_or(epsilon, 1e-6);
  HEDDLE_CHECK(given >= 0, s.where(epsilon), " is ", given, ", expected a number of at least 0");
  config.rms_epsilon = static_cast<float>(given);
}

void refuse_experts(const Settings& settings) {
  for (const SettingName name :
       {SettingName{"", "expert_count"}, {"num_local_experts", ""}, {"num_experts", ""}}) {
    if (!settings.has(name) || settings.integer(name) == 0) continue;
    throw_error(ErrorCode::kUnsupported, settings.where(name), " is ", settings.integer(name),
                ", supported: 0 (mixtures of experts are not supported)");
  }
}

/// The names by which a format knows the families: "gemma2, llama, qwen2".
std::string known_gguf() {
  std::string list;
  for (const Family* family : families()) {
    if (family->gguf_architecture.empty()) continue;
    list += list.empty() ? "" : ", ";
    list += family->gguf_architecture;
  }
  for (const auto& [architecture, family] : kGgufTextHalves) {
    list += ", ";
    list += architecture;
  }
  return list;
}

const Family& find_gguf_family(const GgufSettings& settings) {
  const std::string& value = settings.architecture();
  for (const Family* family : families()) {
    if (!value.empty() && family->gguf_architecture == value) return *family;
  }
  for (const auto& [architecture, family] : kGgufTextHalves) {
    if (architecture == value) return *family;
  }
  throw_error(ErrorCode::kUnsupported, settings.path(), ": general.architecture is ",
              files::printable(value), ", supported: ", known_gguf());
}

/// What a folder holds: a family's model, or a model whose text half is one.
struct FolderKind {
  const Family* family = nullptr;
  const Wrapper* wrapper = nullptr;
  FolderHead head = FolderHead::kTokens;
};

/// The kind whose `name` is the value; a setting calls both by the same key.
std::optional<FolderKind> find_kind(std::string_view Family::*name, std::string_view Wrapper::*of,
                                    std::string_view value) {
  for (const Family* family : families()) {
    if (family->*name == value) return FolderKind{family};
  }
  for (const Wrapper& wrapper : wrappers()) {
    if (wrapper.*of == value) return FolderKind{wrapper.family, &wrapper};
  }
  return std::nullopt;
}

std::string known(std::string_view Family::*name, std::string_view Wrapper::*of) {
  std::string list;
  for (const Family* family : families()) {
    list += list.empty() ? "" : ", ";
    list += family->*name;
  }
  for (const Wrapper& wrapper : wrappers()) {
    list += ", ";
    list += wrapper.*of;
  }
  return list;
}

/// A class of a family without a head for tokens.
std::optional<FolderKind> find_headless_kind(std::string_view architecture) {
  constexpr std::string_view kCausal = "ForCausalLM";
  for (const auto& [suffix, head] :
       {std::pair(std::string_view("ForSequenceClassification"), FolderHead::kScore),
        {"Model", FolderHead::kNone}}) {
    for (const Family* family : families()) {
      const std::string_view stem =
          family->architecture.substr(0, family->architecture.size() - kCausal.size());
      if (architecture.starts_with(stem) && architecture.substr(stem.size()) == suffix) {
        return FolderKind{.family = family, .head = head};
      }
    }
  }
  return std::nullopt;
}

/// By architectures, or where that is missing by model_type, as transformers' AutoModel does.
FolderKind folder_kind(const JsonSettings& settings) {
  const SettingName architectures{"architectures", ""}, type{"model_type", ""};
  const std::vector<std::string> names =
      settings.has(architectures) ? settings.texts(architectures) : std::vector<std::string>();
  if (names.empty()) {
    HEDDLE_CHECK(settings.has(type), settings.path(), ": has neither ", settings.key(architectures),
                 " nor ", settings.key(type), ", expected the model's class or type");
    const std::string value = settings.text(type);
    if (const auto kind = find_kind(&Family::model_type, &Wrapper::model_type, value)) return *kind;
    throw_error(ErrorCode::kUnsupported, settings.where(type), " is ", files::printable(value),
                ", supported: ", known(&Family::model_type, &Wrapper::model_type));
  }
  HEDDLE_CHECK(names.size() == 1, settings.where(architectures), " has ", names.size(),
               " entries, expected one");
  const auto kind = find_kind(&Family::architecture, &Wrapper::architecture, names.front());
  if (kind) return *kind;
  if (const auto headless = find_headless_kind(names.front())) return *headless;
  throw_error(ErrorCode::kUnsupported, settings.where(architectures), " is ",
              files::printable(names.front()),
              ", supported: ", known(&Family::architecture, &Wrapper::architecture),
              ", and of families that are no wrappers the classes that end in Model and "
              "ForSequenceClassification");
}

void check_text_type(const JsonSettings& text, const Wrapper& wrapper) {
  const SettingName type{"model_type", ""};
  const std::string value = text.text_or(type, wrapper.text_type);
  // The older form of Qwen2-VL has no text_config; its settings are of the whole model's type.
  if (value == wrapper.text_type || value == wrapper.model_type) return;
  throw_error(ErrorCode::kUnsupported, text.where(type), " is ", files::printable(value), ", a ",
              wrapper.architecture, " is supported with ", wrapper.text_type);
}

void refuse_quantized(const Settings& settings) {
  const SettingName method{"quantization_config.quant_method", ""};
  const SettingName of_mlx{"quantization", ""};
  if (settings.has(of_mlx)) {
    throw_error(ErrorCode::kUnsupported, settings.where(of_mlx),
                " is set: the weights are packed by MLX, which is not supported; take the model in "
                "bfloat16 or as GGUF");
  }
  if (!settings.has({"quantization_config", ""})) return;
  throw_error(ErrorCode::kUnsupported, settings.where(method), " is ",
              files::printable(settings.text_or(method, "not given")),
              ", weights of that kind are not supported; take the model in bfloat16 or as GGUF");
}

DecoderConfig read(const Family& family, const ModelFacts& facts) {
  refuse_experts(facts.settings);
  DecoderConfig config;
  config.family = family.name;
  read_extents(facts, config);
  family.read(facts, config);
  return config;
}

/// What the context may grow to by the scaling of the rotation, where the folder states the length
/// before it.
int64_t stretched_context(const DecoderConfig& config) {
  const Rotation& rotation = config.rotations.front();
  const RopeParams& rope = rotation.params;
  const auto context = static_cast<double>(config.context_length);
  double stretched = context;
  if (rope.yarn) stretched = rope.yarn->original_max_position * rope.yarn->factor;
  if (rotation.ntk_factor > 0) stretched = context * rotation.ntk_factor;
  constexpr double kMost = 1u << 30;
  return static_cast<int64_t>(std::clamp(stretched, context, std::max(context, kMost)));
}

}  // namespace

DecoderConfig read_gguf_config(const GgufSettings& settings, const WeightSource& weights) {
  const Family& family = find_gguf_family(settings);
  DecoderConfig config = read(family, {settings, weights});
  config.name = std::string(settings.file().get_or<std::string_view>("general.name", ""));
  return config;
}

FolderConfig read_folder_config(const files::Json& object, const std::string& path,
                                const WeightSource& weights) {
  const JsonSettings whole(object, path);
  refuse_quantized(whole);
  const auto [family, wrapper, head] = folder_kind(whole);
  const auto defaults = files::parse_json(
      wrapper != nullptr ? wrapper->folder_defaults : family->folder_defaults, "defaults");
  FolderConfig result;
  result.is_text_half = wrapper != nullptr;
  result.head = head;
  const SettingName text{"text_config", ""};
  if (wrapper == nullptr || !whole.has(text)) {
    const JsonSettings settings(object, path, "", &*defaults);
    whole.mark_void({SettingName{"architectures", ""}});
    if (wrapper != nullptr) check_text_type(settings, *wrapper);
    result.decoder = read(*family, {settings, weights});
    result.unread = settings.unread();
  } else {
    const files::Json& half = object.at("text_config");
    HEDDLE_CHECK(half.is_object(), whole.where(text), " is ", files::json_kind(half),
                 ", expected an object");
    const JsonSettings settings(half, path, "text_config.", &*defaults);
    refuse_quantized(settings);
    check_text_type(settings, *wrapper);
    const SettingName tied{"tie_word_embeddings", ""};
    const bool text_says = wrapper->either_ties && settings.flag_or(tied, false);
    const files::Json fallback =
        files::JsonObject{{"tie_word_embeddings", wrapper->tied_by_default}};
    const JsonSettings outer(object, path, "", &fallback);
    whole.mark_void({tied});
    settings.mark_void({tied});
    result.decoder = read(*family, {settings, weights, text_says ? &settings : &outer});
    result.unread = settings.unread();
    for (std::string& key : whole.unread()) result.unread.push_back(std::move(key));
  }
  result.decoder.context_length = stretched_context(result.decoder);
  if (head != FolderHead::kTokens) {
    result.decoder.has_head = false;
    result.decoder.tied_head = true;  // so that none is loaded
  }
  return result;
}

void read_attention_bias(const ModelFacts& facts, DecoderConfig& config) {
  if (facts.settings.is_gguf()) {
    config.qkv_bias = facts.weights.contains("blk.0.attn_q.bias");
    config.o_bias = facts.weights.contains("blk.0.attn_output.bias");
  } else {
    config.qkv_bias = config.o_bias = facts.settings.flag_or({"attention_bias", ""}, false);
  }
}

void read_mlp_bias(const ModelFacts& facts, DecoderConfig& config) {
  config.mlp_bias = facts.settings.is_gguf() ? facts.weights.contains("blk.0.ffn_up.bias")
                                             : facts.settings.flag_or({"mlp_bias", ""}, false);
}

void read_tied_head(const ModelFacts& facts, DecoderConfig& config, bool by_default) {
  const Settings& settings = facts.tying != nullptr ? *facts.tying : facts.settings;
  config.tied_head = settings.is_gguf() ? !facts.weights.contains("output.weight")
                                        : settings.flag_or({"tie_word_embeddings", ""}, by_default);
}

GateActivation read_activation(const Settings& settings, const SettingName& name,
                               std::string_view by_default) {
  const std::string text = settings.text_or(name, by_default);
  if (text == "silu" || text == "swish") return GateActivation::kSilu;
  if (text == "gelu_pytorch_tanh" || text == "gelu_new") return GateActivation::kGeluTanh;
  if (text == "gelu") return GateActivation::kGeluErf;
  throw_error(ErrorCode::kUnsupported, settings.where(name), " is ", files::printable(text),
              ", supported: silu, gelu, gelu_pytorch_tanh");
}

void read_windows(const Settings& settings, DecoderConfig& config, int64_t window,
                  bool (*slides_by_default)(const Settings& settings, int64_t layer)) {
  config.layers.resize(static_cast<size_t>(config.num_layers));
  const SettingName types{"layer_types", ""};
  std::vector<std::string> given;
  if (settings.has(types)) {
    given = settings.texts(types);
    HEDDLE_CHECK(static_cast<int64_t>(given.size()) == config.num_layers, settings.where(types),
                 " has ", given.size(), " entries, expected one for each of ", config.num_layers,
                 " layers");
  }
  for (int64_t i = 0; i < config.num_layers; ++i) {
    bool slides = slides_by_default(settings, i);
    if (!given.empty()) {
      const std::string& type = given[static_cast<size_t>(i)];
      slides = type == "sliding_attention";
      if (!slides && type != "full_attention") {
        throw_error(ErrorCode::kUnsupported, settings.where(types), " holds ",
                    files::printable(type), ", supported: full_attention, sliding_attention");
      }
    }
    config.layers[static_cast<size_t>(i)].window = slides ? window : -1;
  }
}

}  // namespace heddle::model
