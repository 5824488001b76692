#include "model/families/family.h"

#include <algorithm>
#include <array>

#include "heddle/core/error.h"

#include "files/printable.h"

namespace heddle::model {
namespace {

/// Far above any model; traits of each layer are made before its tensors are looked for.
constexpr int64_t kMaxLayers = 1 << 16;

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
                ", supported: 0 (mixtures of experts are not)");
  }
}

/// The names by which a format knows the families: "gemma2, llama, qwen2".
std::string known(std::string_view Family::*name) {
  std::string list;
  for (const Family* family : families()) {
    if ((family->*name).empty()) continue;
    if (!list.empty()) list += ", ";
    list += family->*name;
  }
  return list;
}

const Family& find_family(std::string_view Family::*name, std::string_view value,
                          const std::string& where) {
  for (const Family* family : families()) {
    if (!value.empty() && family->*name == value) return *family;
  }
  throw_error(ErrorCode::kUnsupported, where, " is ", files::printable(value),
              ", supported: ", known(name));
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
  const Family& family = find_family(&Family::gguf_architecture, settings.architecture(),
                                     settings.path() + ": general.architecture");
  DecoderConfig config = read(family, {settings, weights});
  config.name = std::string(settings.file().get_or<std::string_view>("general.name", ""));
  return config;
}

DecoderConfig read_folder_config(const JsonSettings& settings, const WeightSource& weights) {
  const SettingName method{"quantization_config.quant_method", ""};
  if (settings.has({"quantization_config", ""})) {
    throw_error(ErrorCode::kUnsupported, settings.where(method), " is ",
                files::printable(settings.text_or(method, "not said")),
                ", weights of that kind are not supported; take the model in bfloat16 or as GGUF");
  }
  const SettingName architectures{"architectures", ""};
  const std::vector<std::string> names = settings.texts(architectures);
  HEDDLE_CHECK(names.size() == 1, settings.where(architectures), " has ", names.size(),
               " entries, expected one");
  const Family& family =
      find_family(&Family::architecture, names.front(), settings.where(architectures));
  DecoderConfig config = read(family, {settings, weights});
  config.context_length = stretched_context(config);
  return config;
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
  config.tied_head = facts.settings.is_gguf()
                         ? !facts.weights.contains("output.weight")
                         : facts.settings.flag_or({"tie_word_embeddings", ""}, by_default);
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
