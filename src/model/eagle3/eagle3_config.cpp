#include "model/eagle3/eagle3_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string_view>

#include "heddle/core/error.h"

#include "files/json_value.h"
#include "files/printable.h"
#include "model/config/rotation_settings.h"
#include "model/config/setting_types.h"
#include "model/config/settings.h"
#include "model/source/read_json.h"

namespace heddle::model {
namespace {

using Layers = std::array<int64_t, kEagle3Layers>;

constexpr std::string_view kLayerIds = "eagle_aux_hidden_state_layer_ids";
constexpr std::string_view kNestedLayerIds = "eagle_config.eagle_aux_hidden_state_layer_ids";
constexpr std::string_view kUsesLayers = "eagle_config.use_aux_hidden_state";

std::string shown(const Layers& layers) {
  return std::to_string(layers[0]) + ", " + std::to_string(layers[1]) + ", " +
         std::to_string(layers[2]);
}

/// Reads the settings of a drafter, in the order of what is most likely wrong.
class Reader {
 public:
  Reader(const Settings& settings, const DecoderConfig& target) : s_(settings), target_(target) {}

  Eagle3Config read() {
    check_architecture();
    refuse_what_is_not_there();
    read_extents();
    check_target();
    config_.norm_before_residual = s_.flag_or({"norm_before_residual", ""}, false);
    if (s_.has({"logit_scale", ""})) (void)s_.positive({"logit_scale", ""});  // moves no maximum
    read_rotation();
    read_layers();
    return std::move(config_);
  }

 private:
  void check_architecture() const {
    const SettingName name{"architectures", ""};
    const std::vector<std::string> given =
        s_.has(name) ? s_.texts(name) : std::vector<std::string>();
    const auto is_known = [](std::string_view text) {
      return text == "LlamaForCausalLMEagle3" || text == "Eagle3LlamaForCausalLM";
    };
    if (std::ranges::any_of(given, is_known)) return;
    throw_error(ErrorCode::kUnsupported, s_.where(name), " is ",
                given.empty() ? "missing" : files::quote(given.front()),
                ", expected LlamaForCausalLMEagle3, an EAGLE-3 drafter as vLLM and SGLang take it");
  }

  /// A flag that may only have the value that says nothing.
  void expect_flag(const SettingName& name, bool expected) const {
    if (s_.flag_or(name, expected) == expected) return;
    throw_error(ErrorCode::kUnsupported, s_.where(name), " is ", expected ? "false" : "true",
                ", supported in an EAGLE-3 drafter: ", expected ? "true" : "false");
  }

  void refuse_what_is_not_there() const {
    for (const char* const name :
         {"attention_bias", "mlp_bias", "bias", "qkv_bias", "tie_word_embeddings"}) {
      expect_flag({name, ""}, false);
    }
    expect_flag({"is_causal", ""}, true);
    expect_flag({kUsesLayers, ""}, true);
    const SettingName num_layers{"num_hidden_layers", ""}, activation{"hidden_act", ""};
    const int64_t count = s_.extent_or(num_layers, 1);
    if (count != 1) {
      throw_error(ErrorCode::kUnsupported, s_.where(num_layers), " is ", count,
                  ", supported in an EAGLE-3 drafter: 1");
    }
    const std::string gate = s_.text_or(activation, "silu");
    if (gate != "silu") {
      throw_error(ErrorCode::kUnsupported, s_.where(activation), " is ", files::quote(gate),
                  ", supported in an EAGLE-3 drafter: 'silu'");
    }
  }

  void read_extents() {
    const SettingName q_heads{"num_attention_heads", ""}, kv_heads{"num_key_value_heads", ""};
    const SettingName draft_vocab{"draft_vocab_size", ""};
    Eagle3Config& c = config_;
    c.hidden_size = s_.extent({"hidden_size", ""});
    c.intermediate_size = s_.extent({"intermediate_size", ""});
    c.num_q_heads = s_.extent(q_heads);
    c.num_kv_heads = s_.extent_or(kv_heads, c.num_q_heads);
    HEDDLE_CHECK(c.num_q_heads % c.num_kv_heads == 0, s_.where(q_heads), " is ", c.num_q_heads,
                 ", expected a multiple of ", s_.key(kv_heads), " = ", c.num_kv_heads);
    c.head_dim = s_.extent_or({"head_dim", ""}, c.hidden_size / c.num_q_heads);
    HEDDLE_CHECK(c.head_dim % 2 == 0 && c.head_dim >= 2 && c.head_dim <= 256, s_.path(),
                 ": heads have ", c.head_dim, " elements, expected an even number up to 256");
    c.vocab_size = s_.extent({"vocab_size", ""});
    c.draft_vocab_size = s_.extent_or(draft_vocab, c.vocab_size);
    HEDDLE_CHECK(c.draft_vocab_size <= c.vocab_size, s_.where(draft_vocab), " is ",
                 c.draft_vocab_size, ", expected at most vocab_size = ", c.vocab_size);
    const SettingName epsilon{"rms_norm_eps", ""};
    const double given = s_.number_or(epsilon, 1e-6);
    HEDDLE_CHECK(given >= 0, s_.where(epsilon), " is ", given, ", expected a number of at least 0");
    c.rms_epsilon = static_cast<float>(given);
  }

  void check_target() const {
    const SettingName vocab{"vocab_size", ""}, hidden{"target_hidden_size", ""};
    HEDDLE_CHECK(config_.vocab_size == target_.vocab_size, s_.where(vocab), " is ",
                 config_.vocab_size, ", expected that of the model, ", target_.vocab_size,
                 ": the drafter was trained for another one");
    if (!s_.has(hidden)) return;
    HEDDLE_CHECK(s_.extent(hidden) == target_.hidden_size, s_.where(hidden), " is ",
                 s_.extent(hidden), ", expected that of the model, ", target_.hidden_size,
                 ": the drafter was trained for another one");
  }

  void read_rotation() {
    const DecoderConfig heads{
        .head_dim = config_.head_dim,
        .context_length = s_.extent_or({"max_position_embeddings", ""}, target_.context_length)};
    const Rotation rotation = model::read_rotation(s_, heads);
    if (rotation.depends_on_length() || !rotation.factors.empty()) {
      throw_error(ErrorCode::kUnsupported, s_.path(),
                  ": the rotation of an EAGLE-3 drafter depends on the length of a sequence, "
                  "supported: default, linear, llama3, yarn");
    }
    config_.rope = rotation.params;
  }

  /// vLLM's list has the layers whose inputs are read, SGLang's those whose outputs are.
  void read_layers() {
    const std::optional<Layers> inputs = layers_of(kLayerIds), outputs = layers_of(kNestedLayerIds);
    const int64_t n = target_.num_layers;
    config_.layers = inputs.value_or(Layers{2, n / 2, n - 3});
    if (outputs) {
      Layers after = *outputs;
      for (int64_t& layer : after) ++layer;
      HEDDLE_CHECK(!inputs || *inputs == after, s_.where({kNestedLayerIds, ""}), " is ",
                   shown(*outputs), ", the outputs of these layers, but ", kLayerIds, " is ",
                   shown(*inputs), ", the inputs of others");
      config_.layers = after;
    }
    const auto& layers = config_.layers;
    const bool ascends = layers[0] < layers[1] && layers[1] < layers[2];
    HEDDLE_CHECK(ascends && layers[0] >= 0 && layers[2] < n, s_.path(),
                 ": the drafter reads what enters layers ", shown(layers), " of ", n,
                 ", expected three that ascend from 0 to ", n - 1, "; ", kLayerIds,
                 " names others than 2, n / 2 and n - 3");
  }

  [[nodiscard]] std::optional<Layers> layers_of(std::string_view key) const {
    const SettingName name{key, ""};
    if (!s_.has(name)) return std::nullopt;
    const std::vector<double> given = s_.numbers(name);
    HEDDLE_CHECK(given.size() == kEagle3Layers, s_.where(name), " has ", given.size(),
                 " numbers, expected 3");
    Layers layers{};
    for (size_t i = 0; i < given.size(); ++i) {
      HEDDLE_CHECK(std::abs(given[i]) <= static_cast<double>(target_.num_layers) &&
                       given[i] == std::floor(given[i]),
                   s_.where(name), " has ", given[i], ", expected layers of the model, up to ",
                   target_.num_layers - 1);
      layers[i] = static_cast<int64_t>(given[i]);
    }
    return layers;
  }

  const Settings& s_;
  const DecoderConfig& target_;
  Eagle3Config config_;
};

}  // namespace

Eagle3Config read_eagle3_config(const std::string& folder, const DecoderConfig& target) {
  const std::string path = folder + "/config.json";
  std::error_code error;
  HEDDLE_CHECK(std::filesystem::exists(path, error), folder,
               ": has no config.json, expected the folder of an EAGLE-3 drafter (--draft-model)");
  const files::JsonTree json = read_json(path);
  check_config_types(*json, path);
  const JsonSettings settings(*json, path);
  Eagle3Config config = Reader(settings, target).read();
  const auto says_nothing = [](const files::Json& value) {
    return value.is_null() || files::is_bool(value, false);
  };
  for (std::string& key : settings.unread()) {
    if (is_neutral_setting(key) || says_nothing(json->at(key))) continue;
    config.unread.push_back(std::move(key));
  }
  if (const files::Json* const nested = files::find_member(*json, "eagle_config")) {
    for (const auto& member : nested->get_object()) {
      const std::string key = "eagle_config." + std::string(member.key());
      if (key == kNestedLayerIds || key == kUsesLayers || says_nothing(member.value())) continue;
      config.unread.push_back(key);
    }
  }
  for (std::string& key : unknown_rope_settings(*json)) config.unread.push_back(std::move(key));
  return config;
}

}  // namespace heddle::model
