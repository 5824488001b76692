// What each family makes of its settings, in folders and in GGUF: whole configurations as the
// models that are named were published with them, and as the conversion of llama.cpp states them.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gguf_builder.h"
#include "model/source/folder_model.h"
#include "model/source/gguf_model.h"
#include "model/source/test/small_folder.h"

namespace heddle::model {
namespace {

using nlohmann::json;

/// All traits of a configuration; extents are tested elsewhere.
void expect_traits(const DecoderConfig& got, const DecoderConfig& want, const std::string& name) {
  SCOPED_TRACE(name);
  EXPECT_EQ(got.family, want.family);
  EXPECT_EQ(got.context_length, want.context_length);
  EXPECT_EQ(got.rms_epsilon, want.rms_epsilon);
  EXPECT_EQ(got.norm_before, want.norm_before);
  EXPECT_EQ(got.norm_after, want.norm_after);
  EXPECT_EQ(got.norm_adds_one, want.norm_adds_one);
  EXPECT_EQ(got.qk_norm, want.qk_norm);
  EXPECT_EQ(got.qkv_bias, want.qkv_bias);
  EXPECT_EQ(got.o_bias, want.o_bias);
  EXPECT_EQ(got.mlp_bias, want.mlp_bias);
  EXPECT_EQ(got.fused_qkv, want.fused_qkv);
  EXPECT_EQ(got.fused_gate_up, want.fused_gate_up);
  EXPECT_EQ(got.tied_head, want.tied_head);
  EXPECT_EQ(got.interleaved_qk, want.interleaved_qk);
  EXPECT_EQ(got.gate_activation, want.gate_activation);
  EXPECT_FLOAT_EQ(got.embedding_scale, want.embedding_scale);
  EXPECT_FLOAT_EQ(got.residual_scale, want.residual_scale);
  EXPECT_FLOAT_EQ(got.logits_scale, want.logits_scale);
  const float usual = 1 / std::sqrt(static_cast<float>(got.head_dim));
  EXPECT_FLOAT_EQ(got.attention_scale.value_or(usual), want.attention_scale.value_or(usual));
  EXPECT_EQ(got.attention_soft_cap, want.attention_soft_cap);
  EXPECT_EQ(got.logits_soft_cap, want.logits_soft_cap);
  ASSERT_EQ(got.rotations.size(), want.rotations.size());
  for (size_t i = 0; i < got.rotations.size(); ++i) {
    const Rotation &one = got.rotations[i], &other = want.rotations[i];
    RopeParams params = one.params;
    EXPECT_NEAR(params.attention_factor, other.params.attention_factor, 1e-9);
    params.attention_factor = other.params.attention_factor;
    EXPECT_EQ(params, other.params);
    EXPECT_EQ(one.factors, other.factors);
    EXPECT_EQ(one.long_factors, other.long_factors);
    EXPECT_EQ(one.has_long_factors, other.has_long_factors);
    EXPECT_EQ(one.ntk_factor, other.ntk_factor);
    EXPECT_EQ(one.original_context, other.original_context);
  }
  for (int64_t i = 0; i < got.num_layers; ++i) {
    EXPECT_EQ(got.layer(i).window, want.layer(i).window) << "layer " << i;
    EXPECT_EQ(got.layer(i).rotation, want.layer(i).rotation) << "layer " << i;
  }
}

/// A folder's configuration: heads of 4, rotated as a whole, unless `more` says otherwise.
DecoderConfig folder_config(const std::string& architecture, const json& more) {
  testing::SmallFolder small;
  small.config["architectures"] = {architecture};
  small.config["model_type"] = "any";
  small.config["rms_norm_eps"] = 1e-5;
  small.config["head_dim"] = 4;
  small.config.update(more);
  small.write_all();
  return FolderModel(small.path()).config();
}

/// The defaults of a folder that says little.
DecoderConfig usual(const std::string& family) {
  DecoderConfig config;
  config.family = family;
  config.context_length = 32;
  config.rotations[0].params.rotary_dim = 4;
  return config;
}

TEST(FamilySettings, FoldersThatSayLittle) {
  DecoderConfig want = usual("llama");
  expect_traits(folder_config("LlamaForCausalLM", json::object()), want, "llama");
  expect_traits(
      folder_config("LlamaForCausalLM",
                    {{"tie_word_embeddings", true}, {"attention_bias", true}, {"mlp_bias", true}}),
      [&] {
        DecoderConfig all = want;
        all.tied_head = all.qkv_bias = all.o_bias = all.mlp_bias = true;
        return all;
      }(),
      "llama with biases");
  want = usual("mistral");
  expect_traits(folder_config("MistralForCausalLM", {{"sliding_window", nullptr}}), want, "");
  want.layers = {{.window = 7}, {.window = 7}};
  expect_traits(folder_config("MistralForCausalLM", {{"sliding_window", 7}}), want, "mistral");
  want = usual("qwen2");
  want.qkv_bias = true;
  expect_traits(folder_config("Qwen2ForCausalLM", json::object()), want, "qwen2");
  want = usual("qwen3");
  want.qk_norm = QkNorm::kEachHead;
  expect_traits(folder_config("Qwen3ForCausalLM", json::object()), want, "qwen3");
  want.qkv_bias = want.o_bias = true;
  expect_traits(folder_config("Qwen3ForCausalLM", {{"attention_bias", true}}), want, "qwen3");
  want = usual("olmo2");
  want.norm_before = false;
  want.norm_after = true;
  want.qk_norm = QkNorm::kAllHeads;
  expect_traits(folder_config("Olmo2ForCausalLM", json::object()), want, "olmo2");
  want = usual("phi3");
  want.fused_qkv = want.fused_gate_up = true;
  want.layers = {{.window = 9}, {.window = 9}};
  expect_traits(folder_config("Phi3ForCausalLM", {{"sliding_window", 9}}), want, "phi3");
}

/// Granite 3.1 2B.
TEST(FamilySettings, ScalesOfGranite) {
  DecoderConfig want = usual("granite");
  want.embedding_scale = 12.0f;
  want.residual_scale = 0.22f;
  want.attention_scale = 0.015625f;
  want.logits_scale = 1 / 8.0f;
  expect_traits(folder_config("GraniteForCausalLM", {{"embedding_multiplier", 12.0},
                                                     {"residual_multiplier", 0.22},
                                                     {"attention_multiplier", 0.015625},
                                                     {"logits_scaling", 8.0}}),
                want, "granite");
  want.embedding_scale = want.residual_scale = want.logits_scale = 1.0f;
  want.attention_scale = 1.0f;  // as transformers has it where a folder says nothing
  expect_traits(folder_config("GraniteForCausalLM", json::object()), want, "granite, nothing said");
}

TEST(FamilySettings, WindowsOfQwen) {
  const json six = {{"num_hidden_layers", 6}, {"sliding_window", 5}};
  const auto with = [&](json more) {
    more.update(six);
    return more;
  };
  for (const char* architecture : {"Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    DecoderConfig want = usual(architecture[4] == '2' ? "qwen2" : "qwen3");
    want.qkv_bias = architecture[4] == '2';
    want.qk_norm = want.qkv_bias ? QkNorm::kNone : QkNorm::kEachHead;
    expect_traits(folder_config(architecture, with({{"use_sliding_window", false}})), want, "off");
    expect_traits(folder_config(architecture, with(json::object())), want, "not said");
    want.layers = std::vector<LayerTraits>(6);
    expect_traits(folder_config(architecture, with({{"use_sliding_window", true}})), want,
                  "28 layers without a window are more than there are");
    want.layers[4].window = want.layers[5].window = 5;
    expect_traits(
        folder_config(architecture, with({{"use_sliding_window", true}, {"max_window_layers", 4}})),
        want, "layers from max_window_layers on have the window");
    want.layers[4].window = -1;
    want.layers[0].window = 5;
    const json types = {"sliding_attention", "full_attention", "full_attention",
                        "full_attention",    "full_attention", "sliding_attention"};
    expect_traits(
        folder_config(
            architecture,
            with({{"use_sliding_window", true}, {"max_window_layers", 4}, {"layer_types", types}})),
        want, "layer_types go before max_window_layers");
  }
}

TEST(FamilySettings, LayersOfSmolLm3) {
  const json nine = {{"num_hidden_layers", 9}, {"hidden_act", "silu"}};
  DecoderConfig want = usual("smollm3");
  want.tied_head = true;
  want.rotations[0].params.theta = 2e6;
  want.layers = std::vector<LayerTraits>(9);
  const auto without = [&](std::initializer_list<size_t> layers) {
    DecoderConfig some = want;
    for (const size_t layer : layers) some.layers[layer].rotation = LayerTraits::kNoRotation;
    return some;
  };
  const auto with = [&](json more) {
    more.update(nine);
    return folder_config("SmolLM3ForCausalLM", more);
  };
  expect_traits(with(json::object()), without({3, 7}), "every fourth layer");
  expect_traits(with({{"no_rope_layer_interval", 3}}), without({2, 5, 8}), "every third");
  const json list = {1, 0, 1, 1, 1, 1, 1, 1, 0};
  DecoderConfig given = without({1, 8});
  expect_traits(with({{"no_rope_layers", list}, {"no_rope_layer_interval", 3}}), given, "a list");
  given.layers[1].window = given.layers[8].window = 6;
  expect_traits(
      with({{"no_rope_layers", list}, {"use_sliding_window", true}, {"sliding_window", 6}}), given,
      "a window where nothing turns");
}

/// Gemma 2 27B and 9B: of the former q k is scaled by the width of a head that 32 heads would have.
TEST(FamilySettings, Gemma2) {
  const json common = {{"num_hidden_layers", 3},
                       {"hidden_activation", "gelu_pytorch_tanh"},
                       {"attn_logit_softcapping", 50.0},
                       {"final_logit_softcapping", 30.0},
                       {"sliding_window", 20},
                       {"hidden_size", 16},
                       {"head_dim", 4}};
  DecoderConfig want = usual("gemma2");
  want.norm_after = want.norm_adds_one = want.tied_head = true;
  want.embedding_scale = 4.0f;
  want.gate_activation = GateActivation::kGeluTanh;
  want.attention_soft_cap = 50.0f;
  want.logits_soft_cap = 30.0f;
  want.layers = {{.window = 20}, {.window = -1}, {.window = 20}};
  const auto with = [&](json more) {
    more.update(common);
    return folder_config("Gemma2ForCausalLM", more);
  };
  want.attention_scale = 1 / 12.0f;
  expect_traits(with({{"query_pre_attn_scalar", 144}}), want, "27B");
  want.attention_scale = 1 / 16.0f;
  expect_traits(with({{"query_pre_attn_scalar", 256}}), want, "9B");
  expect_traits(with(json::object()), want, "256 where the folder says nothing");
}

/// Gemma 3 27B: five layers of a window with a base of their own, then one whose positions are
/// scaled.
TEST(FamilySettings, Gemma3) {
  DecoderConfig want = usual("gemma3");
  want.norm_after = want.norm_adds_one = want.tied_head = true;
  want.embedding_scale = 4.0f;
  want.gate_activation = GateActivation::kGeluTanh;
  want.qk_norm = QkNorm::kEachHead;
  want.attention_scale = 1 / std::sqrt(168.0f);
  want.rotations.resize(2);
  want.rotations[0].params = {.theta = 1e6, .scale = 8.0, .rotary_dim = 4};
  want.rotations[1].params = {.theta = 1e4, .scale = 1.0, .rotary_dim = 4};
  for (int i = 0; i < 7; ++i) {
    want.layers.push_back(i == 5 ? LayerTraits{} : LayerTraits{.rotation = 1, .window = 10});
  }
  const json common = {{"num_hidden_layers", 7},
                       {"sliding_window", 10},
                       {"hidden_size", 16},
                       {"head_dim", 4},
                       {"rope_theta", 1e6},
                       {"rope_local_base_freq", 1e4},
                       {"query_pre_attn_scalar", 168},
                       {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}};
  expect_traits(folder_config("Gemma3ForCausalLM", common), want, "every sixth layer sees all");
  json three = common;
  three["sliding_window_pattern"] = 3;
  want.layers.assign(7, {.rotation = 1, .window = 10});
  want.layers[2] = want.layers[5] = {};
  expect_traits(folder_config("Gemma3ForCausalLM", three), want, "every third layer sees all");
}

Rotation rotation_of(const json& more) {
  json settings = {{"head_dim", 8}, {"max_position_embeddings", 131072}};
  settings.update(more);
  return folder_config("LlamaForCausalLM", settings).rotations.front();
}

/// Llama 3.1 8B, Qwen2.5 with YaRN as its card says, DeepSeek's mscale.
TEST(FamilySettings, KindsOfRotationOfFolders) {
  const Rotation llama = rotation_of({{"rope_theta", 5e5},
                                      {"rope_scaling",
                                       {{"rope_type", "llama3"},
                                        {"factor", 8.0},
                                        {"low_freq_factor", 1.5},
                                        {"high_freq_factor", 4.5},
                                        {"original_max_position_embeddings", 8000}}}});
  const Llama3RopeScaling scaling{.factor = 8.0,
                                  .low_freq_factor = 1.5,
                                  .high_freq_factor = 4.5,
                                  .original_max_position = 8000.0};
  EXPECT_EQ(llama.params, (RopeParams{.theta = 5e5, .rotary_dim = 8, .llama3 = scaling}));
  EXPECT_FALSE(llama.depends_on_length());

  json yarn = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
  Rotation rotation = rotation_of({{"rope_scaling", yarn}});
  YarnRopeScaling want{.factor = 4.0, .original_max_position = 32768.0};
  EXPECT_EQ(rotation.params.yarn, want);
  EXPECT_EQ(want.beta_fast, 32.0);  // of the paper
  EXPECT_EQ(want.beta_slow, 1.0);
  EXPECT_TRUE(want.truncate);
  EXPECT_NEAR(rotation.params.attention_factor, 1.1386294361119891, 1e-12);  // 0.1 ln 4 + 1
  yarn.update({{"beta_fast", 24}, {"beta_slow", 2}, {"truncate", false}});
  rotation = rotation_of({{"rope_scaling", yarn}});
  want.beta_fast = 24.0;
  want.beta_slow = 2.0;
  want.truncate = false;
  EXPECT_EQ(rotation.params.yarn, want);
  yarn.update({{"mscale", 1.0}, {"mscale_all_dim", 0.5}});  // (0.1 ln 4 + 1) / (0.05 ln 4 + 1)
  EXPECT_NEAR(rotation_of({{"rope_scaling", yarn}}).params.attention_factor, 1.0648216253695715,
              1e-12);
  yarn["attention_factor"] = 0.75;
  EXPECT_EQ(rotation_of({{"rope_scaling", yarn}}).params.attention_factor, 0.75);

  EXPECT_EQ(rotation_of({{"rope_scaling", {{"type", "linear"}, {"factor", 2.5}}}}).params.scale,
            2.5);
  EXPECT_EQ(rotation_of({{"partial_rotary_factor", 0.5}}).params.rotary_dim, 4);
  EXPECT_EQ(rotation_of({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 77.0}}}})
                .params.theta,
            77.0);
}

/// YaRN's context is that of before the scaling times the factor, where this is more than is said.
TEST(FamilySettings, TheContextThatScalingGives) {
  const json yarn = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 100}};
  const auto context = [](const json& more) {
    return folder_config("LlamaForCausalLM", more).context_length;
  };
  EXPECT_EQ(context({{"max_position_embeddings", 100}, {"rope_scaling", yarn}}), 400);
  EXPECT_EQ(context({{"max_position_embeddings", 401}, {"rope_scaling", yarn}}), 401);
  EXPECT_EQ(context({{"max_position_embeddings", 100},
                     {"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}}),
            200);
  EXPECT_EQ(context({{"max_position_embeddings", 100},
                     {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}),
            100);
}

/// Phi-3.5: sequences of up to the original context turn by the short factors, that length
/// included.
TEST(FamilySettings, AnglesByTheLengthOfTheSequence) {
  const json longrope = {
      {"type", "longrope"}, {"short_factor", {1.0, 1.5}}, {"long_factor", {2.0, 4.0}}};
  const DecoderConfig config =
      folder_config("Phi3ForCausalLM", {{"rope_scaling", longrope},
                                        {"max_position_embeddings", 131072},
                                        {"original_max_position_embeddings", 4096}});
  const Rotation& phi = config.rotations.front();
  EXPECT_EQ(phi.factors, (std::vector<float>{1.0f, 1.5f}));
  EXPECT_EQ(phi.long_factors, (std::vector<float>{2.0f, 4.0f}));
  EXPECT_EQ(phi.original_context, 4096);
  EXPECT_FALSE(phi.is_long(4095));
  EXPECT_FALSE(phi.is_long(4096));
  EXPECT_TRUE(phi.is_long(4097));
  EXPECT_EQ(config.recompute_above(), 4096);
  EXPECT_NEAR(phi.params.attention_factor, 1.1902380714238083, 1e-12);  // sqrt(1 + ln 32 / ln 4096)

  const Rotation dynamic = rotation_of(
      {{"rope_scaling", {{"type", "dynamic"}, {"factor", 3.0}}}, {"max_position_embeddings", 100}});
  EXPECT_EQ(dynamic.original_context, 100);
  EXPECT_EQ(dynamic.params_for(99).theta, 1e4);
  EXPECT_EQ(dynamic.params_for(100).theta, 1e4);
  // (3 * 150 / 100 - 2)^(8 / 6) = 2.5^(4 / 3)
  EXPECT_NEAR(dynamic.params_for(150).theta, 1e4 * 3.393022020743633, 1e-6);
  EXPECT_GT(dynamic.params_for(101).theta, 1e4);
  EXPECT_EQ(dynamic.params_for(150).rotary_dim, 8);
}

using Fill = std::function<void(testing::GgufBuilder&, const std::string&)>;

/// The configuration of a GGUF file with heads of 4; `fill` gets the architecture and a dot.
DecoderConfig gguf_config(const std::string& architecture, uint32_t layers, const Fill& fill,
                          uint32_t width = 16, uint32_t heads = 4) {
  testing::GgufBuilder file;
  const std::string prefix = architecture + ".";
  file.value("general.architecture", architecture)
      .value(prefix + "block_count", layers)
      .value(prefix + "embedding_length", width)
      .value(prefix + "feed_forward_length", uint32_t{24})
      .value(prefix + "attention.head_count", heads)
      .value(prefix + "attention.head_count_kv", uint32_t{2})
      .value(prefix + "attention.key_length", uint32_t{4})
      .value(prefix + "attention.value_length", uint32_t{4})
      .value(prefix + "context_length", uint32_t{32})
      .value(prefix + "attention.layer_norm_rms_epsilon", 1e-5f);
  fill(file, prefix);
  file.tensor("token_embd.weight", {width, 3}, 0, std::string(sizeof(float) * 3 * width, '\0'));
  const std::string text = file.build();
  return GgufModel(std::as_bytes(std::span(text)), "m.gguf").config();
}

void nothing(testing::GgufBuilder& /*file*/, const std::string& /*prefix*/) {}

/// A file without a head has the embedding as its head.
DecoderConfig usual_gguf(const std::string& family) {
  DecoderConfig config = usual(family);
  config.tied_head = true;
  return config;
}

TEST(FamilySettings, GgufFilesThatSayLittle) {
  DecoderConfig want = usual_gguf("llama");
  want.interleaved_qk = true;
  expect_traits(gguf_config("llama", 2, nothing), want, "llama");
  want.family = "granite";
  want.attention_scale = 1.0f;
  expect_traits(gguf_config("granite", 2, nothing), want, "granite");
  want = usual_gguf("qwen2");
  want.qkv_bias = true;
  expect_traits(gguf_config("qwen2", 2, nothing), want, "qwen2");
  want = usual_gguf("qwen3");
  want.qk_norm = QkNorm::kEachHead;
  expect_traits(gguf_config("qwen3", 2, nothing), want, "qwen3");
  want = usual_gguf("olmo2");
  want.norm_before = false;
  want.norm_after = true;
  want.qk_norm = QkNorm::kAllHeads;
  expect_traits(gguf_config("olmo2", 2, nothing), want, "olmo2");
  want = usual_gguf("smollm3");
  want.interleaved_qk = true;
  want.rotations[0].params.theta = 2e6;
  want.layers = std::vector<LayerTraits>(5);
  want.layers[3].rotation = LayerTraits::kNoRotation;
  expect_traits(gguf_config("smollm3", 5, nothing), want, "smollm3");
}

TEST(FamilySettings, ScalesOfGraniteInGguf) {
  DecoderConfig want = usual_gguf("granite");
  want.interleaved_qk = true;
  want.embedding_scale = 12.0f;
  want.residual_scale = 0.22f;
  want.attention_scale = 0.015625f;
  want.logits_scale = 1 / 8.0f;
  expect_traits(gguf_config("granite", 2,
                            [](testing::GgufBuilder& file, const std::string& prefix) {
                              file.value(prefix + "embedding_scale", 12.0f)
                                  .value(prefix + "residual_scale", 0.22f)
                                  .value(prefix + "attention.scale", 0.015625f)
                                  .value(prefix + "logit_scale", 8.0f);
                            }),
                want, "granite");
}

/// Where heads are as many as the width has twelves: of 46 layers, Gemma 2 27B, q k is scaled by
/// the width of a head that all heads together would fill; other sizes by that of a head.
TEST(FamilySettings, GemmaInGguf) {
  const Fill fill = [](testing::GgufBuilder& file, const std::string& prefix) {
    file.value(prefix + "attention.sliding_window", uint32_t{20})
        .value(prefix + "attn_logit_softcapping", 50.0f)
        .value(prefix + "final_logit_softcapping", 30.0f);
  };
  DecoderConfig want = usual_gguf("gemma2");
  want.norm_after = true;
  want.embedding_scale = 12.0f;  // the root of 144
  want.gate_activation = GateActivation::kGeluTanh;
  want.attention_soft_cap = 50.0f;
  want.logits_soft_cap = 30.0f;
  for (const uint32_t layers : {26u, 42u, 46u}) {
    want.layers.assign(layers, {});
    for (size_t i = 0; i < layers; i += 2) want.layers[i].window = 20;
    want.attention_scale = layers == 46 ? 1 / 6.0f : 1 / 2.0f;  // 144 / 4 = 36, or heads of 4
    expect_traits(gguf_config("gemma2", layers, fill, 144), want, "gemma2");
  }
  want.family = "gemma3";
  want.qk_norm = QkNorm::kEachHead;
  want.attention_soft_cap = 0.0f;
  want.rotations.resize(2);
  want.rotations[0].params = {.theta = 1e6, .rotary_dim = 4};
  want.rotations[1].params = {.theta = 1e4, .rotary_dim = 4};
  for (const uint32_t layers : {34u, 48u, 62u}) {
    want.layers.assign(layers, {.rotation = 1, .window = 20});
    for (size_t i = 5; i < layers; i += 6) want.layers[i] = {};
    want.attention_scale = layers == 62 ? 1 / 6.0f : 1 / 2.0f;
    expect_traits(gguf_config("gemma3", layers, fill, 144), want, "gemma3");
  }
}

TEST(FamilySettings, YarnInGguf) {
  const auto rotation = [](const Fill& more) {
    const Fill fill = [&](testing::GgufBuilder& file, const std::string& prefix) {
      file.value(prefix + "rope.freq_base", 1e6f)
          .value(prefix + "rope.scaling.type", "yarn")
          .value(prefix + "rope.scaling.factor", 4.0f)
          .value(prefix + "rope.scaling.original_context_length", uint32_t{8});
      more(file, prefix);
    };
    return gguf_config("qwen2", 2, fill).rotations.front().params;
  };
  const RopeParams plain = rotation(nothing);
  EXPECT_EQ(plain.theta, 1e6);
  EXPECT_EQ(plain.yarn, (YarnRopeScaling{.factor = 4.0,
                                         .original_max_position = 8.0,
                                         .beta_fast = 32.0,
                                         .beta_slow = 1.0,
                                         .truncate = true}));
  EXPECT_NEAR(plain.attention_factor, 1.1386294361119891, 1e-12);
  const RopeParams own = rotation([](testing::GgufBuilder& file, const std::string& prefix) {
    file.value(prefix + "rope.scaling.yarn_beta_fast", 24.0f)
        .value(prefix + "rope.scaling.yarn_beta_slow", 2.0f)
        .value(prefix + "rope.scaling.attn_factor", 0.5f);
  });
  EXPECT_EQ(own.yarn, (YarnRopeScaling{.factor = 4.0,
                                       .original_max_position = 8.0,
                                       .beta_fast = 24.0,
                                       .beta_slow = 2.0,
                                       .truncate = true}));
  EXPECT_NEAR(own.attention_factor, 1.1386294361119891 / 2, 1e-12);
}

}  // namespace
}  // namespace heddle::model
