#include "model/llama_config.h"

#include "heddle/core/error.h"

#include "files/printable.h"

namespace heddle::model {
namespace {

/// Far above any model, low enough that products of two extents stay within 64 bits.
constexpr int64_t kMaxExtent = int64_t{1} << 31;

int64_t read_extent(const files::GgufFile& file, std::string_view key) {
  const auto value = file.get<int64_t>(key);
  HEDDLE_CHECK(value >= 1 && value < kMaxExtent, file.path(), ": ", key, " is ", value,
               ", expected 1 to ", kMaxExtent - 1);
  return value;
}

int64_t read_extent_or(const files::GgufFile& file, std::string_view key, int64_t fallback) {
  return file.find(key) != nullptr ? read_extent(file, key) : fallback;
}

RopeParams read_rope(const files::GgufFile& file, int64_t head_dim) {
  RopeParams rope;
  rope.theta = file.get_or<double>("llama.rope.freq_base", 1e4);
  HEDDLE_CHECK(rope.theta > 0, file.path(), ": llama.rope.freq_base is ", rope.theta,
               ", expected a positive number");
  const int64_t rotary_dim = read_extent_or(file, "llama.rope.dimension_count", head_dim);
  HEDDLE_CHECK(rotary_dim % 2 == 0 && rotary_dim <= head_dim, file.path(),
               ": llama.rope.dimension_count is ", rotary_dim, ", expected an even number up to ",
               head_dim);
  rope.rotary_dim = static_cast<int>(rotary_dim);
  const auto scaling = file.get_or<std::string_view>("llama.rope.scaling.type", "none");
  if (scaling == "linear") {
    rope.scale = file.get<double>("llama.rope.scaling.factor");
    HEDDLE_CHECK(rope.scale > 0, file.path(), ": llama.rope.scaling.factor is ", rope.scale,
                 ", expected a positive number");
  } else if (scaling != "none") {
    throw_error(ErrorCode::kUnsupported, file.path(), ": llama.rope.scaling.type is ",
                files::printable(scaling), ", supported: none, linear");
  }
  return rope;
}

}  // namespace

ModelDims LlamaConfig::dims() const {
  ModelDims dims;
  dims.num_layers = num_layers;
  dims[Projection::kQ] = {hidden_size, num_q_heads * head_dim};
  dims[Projection::kK] = dims[Projection::kV] = {hidden_size, num_kv_heads * head_dim};
  dims[Projection::kO] = {num_q_heads * head_dim, hidden_size};
  dims[Projection::kGate] = dims[Projection::kUp] = {hidden_size, intermediate_size};
  dims[Projection::kDown] = {intermediate_size, hidden_size};
  return dims;
}

LlamaConfig read_llama_config(const files::GgufFile& file) {
  const auto architecture = file.get<std::string_view>("general.architecture");
  if (architecture != "llama") {
    throw_error(ErrorCode::kUnsupported, file.path(), ": general.architecture is ",
                files::printable(architecture), ", supported: llama");
  }
  const auto num_experts = file.get_or<int64_t>("llama.expert_count", 0);
  if (num_experts != 0) {
    throw_error(ErrorCode::kUnsupported, file.path(), ": llama.expert_count is ", num_experts,
                ", supported: 0 (mixtures of experts are not)");
  }
  LlamaConfig config;
  config.name = std::string(file.get_or<std::string_view>("general.name", ""));
  config.num_layers = read_extent(file, "llama.block_count");
  config.hidden_size = read_extent(file, "llama.embedding_length");
  config.intermediate_size = read_extent(file, "llama.feed_forward_length");
  config.num_q_heads = read_extent(file, "llama.attention.head_count");
  config.num_kv_heads = read_extent_or(file, "llama.attention.head_count_kv", config.num_q_heads);
  HEDDLE_CHECK(config.num_q_heads % config.num_kv_heads == 0, file.path(),
               ": llama.attention.head_count is ", config.num_q_heads,
               ", expected a multiple of llama.attention.head_count_kv = ", config.num_kv_heads);
  config.head_dim =
      read_extent_or(file, "llama.attention.key_length", config.hidden_size / config.num_q_heads);
  HEDDLE_CHECK(config.head_dim % 2 == 0 && config.head_dim >= 2 && config.head_dim <= 256,
               file.path(), ": heads have ", config.head_dim,
               " elements, expected an even number up to 256");
  const auto value_length = file.get_or<int64_t>("llama.attention.value_length", config.head_dim);
  HEDDLE_CHECK(value_length == config.head_dim, file.path(), ": llama.attention.value_length is ",
               value_length, ", expected the key's length ", config.head_dim);
  config.context_length = read_extent(file, "llama.context_length");
  config.vocab_size = file.tensor("token_embd.weight").dims[1];
  config.rms_epsilon = file.get<float>("llama.attention.layer_norm_rms_epsilon");
  HEDDLE_CHECK(config.rms_epsilon >= 0, file.path(), ": llama.attention.layer_norm_rms_epsilon is ",
               config.rms_epsilon, ", expected a number of at least 0");
  config.rope = read_rope(file, config.head_dim);
  return config;
}

}  // namespace heddle::model
