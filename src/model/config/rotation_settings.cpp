#include "model/config/rotation_settings.h"

#include <cmath>
#include <string>

#include "heddle/core/error.h"

#include "files/printable.h"

namespace heddle::model {
namespace {

/// The rotation as a folder says it: rope_parameters of transformers 5, alone or by the type of a
/// layer; in versions before, rope_scaling and rope_theta.
class FolderRotation {
 public:
  FolderRotation(const Settings& settings, const DecoderConfig& config,
                 const RotationDefaults& defaults)
      : settings_(settings), config_(config), defaults_(defaults) {
    const std::string by_type = "rope_parameters." + std::string(defaults.layer_type);
    if (!defaults.layer_type.empty() && settings.has({by_type, ""})) {
      section_ = by_type + ".";
    } else if (defaults.may_scale) {
      section_ = settings.has({"rope_parameters", ""}) ? "rope_parameters." : "rope_scaling.";
    }
  }

  Rotation read() {
    read_extent();
    const std::string type =
        has("rope_type") ? text("rope_type") : (has("type") ? text("type") : "default");
    // "mrope" gives text three equal positions, and so the plain rotation.
    if (type == "default" || type == "mrope") return rotation_;
    if (type == "linear") {
      rotation_.params.scale = positive("factor");
    } else if (type == "dynamic") {
      rotation_.ntk_factor = positive("factor");
      rotation_.original_context = config_.context_length;
      HEDDLE_CHECK(rotation_.params.rotary_dim > 2, settings_.path(),
                   ": only 2 elements of a head are rotated, dynamic scaling needs more");
    } else if (type == "llama3") {
      read_llama3();
    } else if (type == "longrope" ||
               (defaults_.scaling_is_longrope && (type == "su" || type == "yarn"))) {
      read_longrope();
    } else if (type == "yarn") {
      read_yarn();
    } else {
      throw_error(ErrorCode::kUnsupported, where("rope_type"), " is ", files::printable(type),
                  ", supported: default, linear, dynamic, llama3, yarn, longrope");
    }
    return rotation_;
  }

 private:
  void read_extent() {
    RopeParams& rope = rotation_.params;
    rope.theta = defaults_.theta;
    if (has("rope_theta")) {
      rope.theta = positive("rope_theta");
    } else {
      rope.theta = settings_.positive_or({defaults_.theta_name.folder, ""}, rope.theta);
    }
    const double part = has("partial_rotary_factor")
                            ? positive("partial_rotary_factor")
                            : settings_.positive_or({"partial_rotary_factor", ""}, 1.0);
    HEDDLE_CHECK(part <= 1.0, where("partial_rotary_factor"), " is ", part, ", expected up to 1");
    rope.rotary_dim = static_cast<int>(part * static_cast<double>(config_.head_dim));
    HEDDLE_CHECK(rope.rotary_dim >= 2 && rope.rotary_dim % 2 == 0, where("partial_rotary_factor"),
                 " is ", part, ": ", rope.rotary_dim, " of the ", config_.head_dim,
                 " elements of a head are rotated, expected an even number of them");
  }

  /// The length that the model was trained for before it was stretched.
  double original_context() {
    const SettingName outside{"original_max_position_embeddings", ""};
    if (settings_.has(outside)) return static_cast<double>(settings_.extent(outside));
    if (has("original_max_position_embeddings")) {
      return static_cast<double>(settings_.extent({key("original_max_position_embeddings"), ""}));
    }
    return static_cast<double>(config_.context_length);
  }

  void read_llama3() {
    rotation_.params.llama3 = Llama3RopeScaling{.factor = positive("factor"),
                                                .low_freq_factor = positive("low_freq_factor"),
                                                .high_freq_factor = positive("high_freq_factor"),
                                                .original_max_position = original_context()};
  }

  void read_yarn() {
    const double original = original_context();
    YarnRopeScaling yarn{.factor = has("factor")
                                       ? positive("factor")
                                       : static_cast<double>(config_.context_length) / original,
                         .original_max_position = original};
    // 0 means the default, as in transformers.
    if (number_or("beta_fast", 0.0) != 0.0) yarn.beta_fast = positive("beta_fast");
    if (number_or("beta_slow", 0.0) != 0.0) yarn.beta_slow = positive("beta_slow");
    if (has("truncate")) yarn.truncate = settings_.flag({key("truncate"), ""});
    rotation_.params.yarn = yarn;
    const double mscale = number_or("mscale", 0.0), of_all = number_or("mscale_all_dim", 0.0);
    double& factor = rotation_.params.attention_factor;
    if (has("attention_factor")) {
      factor = positive("attention_factor");
    } else if (mscale != 0.0 && of_all != 0.0) {
      factor = yarn_attention_factor(yarn.factor, mscale, of_all);
    } else {
      factor = yarn_attention_factor(yarn.factor);
    }
  }

  void read_longrope() {
    const double original = original_context();
    rotation_.original_context = static_cast<int64_t>(original);
    rotation_.factors = factors("short_factor");
    rotation_.long_factors = factors("long_factor");
    rotation_.has_long_factors = true;
    if (has("attention_factor")) {
      rotation_.params.attention_factor = positive("attention_factor");
      return;
    }
    const double by =
        has("factor") ? positive("factor") : static_cast<double>(config_.context_length) / original;
    HEDDLE_CHECK(by <= 1.0 || original > 1.0, settings_.path(),
                 ": original_max_position_embeddings is ", original,
                 ", expected more where longrope has no attention_factor");
    rotation_.params.attention_factor =
        by <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(by) / std::log(original));
  }

  std::vector<float> factors(const char* name) {
    const std::vector<double> given = settings_.numbers({key(name), ""});
    const int64_t expected = rotation_.params.rotary_dim / 2;
    HEDDLE_CHECK(static_cast<int64_t>(given.size()) == expected, where(name), " has ", given.size(),
                 " numbers, expected ", expected);
    std::vector<float> factors;
    for (const double factor : given) {
      HEDDLE_CHECK(std::isfinite(factor) && factor > 0, where(name), " holds ", factor,
                   ", expected positive numbers");
      factors.push_back(static_cast<float>(factor));
    }
    return factors;
  }

  // SettingName views a text: the key just made, which lives until the next one is.
  const std::string& key(std::string_view name) { return key_ = section_ + std::string(name); }
  std::string where(std::string_view name) { return settings_.where({key(name), ""}); }
  bool has(std::string_view name) { return !section_.empty() && settings_.has({key(name), ""}); }
  double positive(std::string_view name) { return settings_.positive({key(name), ""}); }
  double number_or(std::string_view name, double fallback) {
    return settings_.number_or({key(name), ""}, fallback);
  }
  std::string text(std::string_view name) { return settings_.text({key(name), ""}); }

  const Settings& settings_;
  const DecoderConfig& config_;
  const RotationDefaults& defaults_;
  std::string section_, key_;
  Rotation rotation_;
};

Rotation read_gguf(const Settings& settings, const DecoderConfig& config,
                   const RotationDefaults& defaults) {
  Rotation rotation;
  RopeParams& rope = rotation.params;
  rope.theta = settings.positive_or(defaults.theta_name, defaults.theta);
  const SettingName dimension{"", "rope.dimension_count"};
  const int64_t rotary_dim = settings.extent_or(dimension, config.head_dim);
  HEDDLE_CHECK(rotary_dim % 2 == 0 && rotary_dim <= config.head_dim, settings.where(dimension),
               " is ", rotary_dim, ", expected an even number up to ", config.head_dim);
  rope.rotary_dim = static_cast<int>(rotary_dim);
  const SettingName type{"", "rope.scaling.type"}, factor{"", "rope.scaling.factor"};
  const SettingName original{"", "rope.scaling.original_context_length"};
  const std::string scaling = settings.text_or(type, "none");
  const double attention_factor = settings.positive_or({"", "rope.scaling.attn_factor"}, 1.0);
  if (!defaults.may_scale) return rotation;
  if (scaling == "linear") {
    rope.scale = settings.positive(factor);
  } else if (scaling == "yarn") {
    YarnRopeScaling yarn{.factor = settings.positive(factor),
                         .original_max_position = static_cast<double>(
                             settings.extent_or(original, config.context_length))};
    yarn.beta_fast = settings.positive_or({"", "rope.scaling.yarn_beta_fast"}, yarn.beta_fast);
    yarn.beta_slow = settings.positive_or({"", "rope.scaling.yarn_beta_slow"}, yarn.beta_slow);
    rope.yarn = yarn;
    rope.attention_factor = attention_factor * yarn_attention_factor(yarn.factor);
  } else if (defaults.scaling_is_longrope && (scaling == "longrope" || scaling == "none")) {
    rope.attention_factor = attention_factor;
    rotation.original_context = settings.extent_or(original, config.context_length);
  } else if (scaling != "none") {
    throw_error(ErrorCode::kUnsupported, settings.where(type), " is ", files::printable(scaling),
                ", supported: none, linear, yarn");
  }
  return rotation;
}

}  // namespace

Rotation read_rotation(const Settings& settings, const DecoderConfig& config,
                       const RotationDefaults& defaults) {
  if (settings.is_gguf()) return read_gguf(settings, config, defaults);
  return FolderRotation(settings, config, defaults).read();
}

}  // namespace heddle::model
