#include "model/source/folder_model.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/core/context.h"

#include "chat_template/conversation.h"
#include "expect_error.h"
#include "model/weights/decoder_weights.h"
#include "small_folder.h"

namespace heddle::model {
namespace {

using testing::expect_invalid;
using testing::expect_unsupported;
using testing::SmallFolder;

/// Opens the folder as it is.
void open(const SmallFolder& small) { const FolderModel model(small.path()); }
/// Opens a folder of these settings.
void open_with(const SmallFolder& small) {
  small.write_all();
  open(small);
}
/// Opens it and loads its weights.
void load(const SmallFolder& small) {
  small.write_all();
  const FolderModel model(small.path());
  const ExecContext ctx;
  (void)load_weights(ctx, model.weights(), model.config(), model.tensor_names());
}

TEST(FolderModel, ReadsASmallModel) {
  const SmallFolder small;
  load(small);
  const FolderModel model(small.path());
  EXPECT_EQ(model.config().family, "qwen2");
  EXPECT_EQ(model.config().num_layers, 2);
  EXPECT_TRUE(model.config().qkv_bias);
  EXPECT_EQ(model.unread_settings(), std::vector<std::string>());
}

TEST(FolderModel, AScoreHeadThatIsNotFiniteIsRefusedByName) {
  SmallFolder small;
  small.config["architectures"] = {"Qwen2ForSequenceClassification"};
  small.shapes.erase("lm_head.weight");
  small.shapes["score.weight"] = {3, 8};
  small.shapes["score.bias"] = {3};
  const auto open_where = [&](const char* tensor, float last) {
    small.write_all();
    small.folder.write("model.safetensors",
                       SmallFolder::weights_of(small.shapes, {{tensor, last}}));
    open(small);
  };
  using Limits = std::numeric_limits<float>;
  EXPECT_NO_THROW(open_where("score.weight", Limits::max()));
  expect_invalid({"model.safetensors: tensor 'score.weight' has NaN at [2, 7]"},
                 [&] { open_where("score.weight", Limits::quiet_NaN()); });
  expect_invalid({"model.safetensors: tensor 'score.weight' has infinity at [2, 7]"},
                 [&] { open_where("score.weight", -Limits::infinity()); });
  expect_invalid({"model.safetensors: tensor 'score.bias' has infinity at [0, 2]"},
                 [&] { open_where("score.bias", Limits::infinity()); });
}

TEST(FolderModel, NeedsItsFiles) {
  const SmallFolder small;
  expect_invalid({"config.json"}, [&] { open(small); });
  small.folder.write("config.json", small.config.dump());
  expect_invalid({small.path().c_str(), "neither model.safetensors nor"}, [&] { open(small); });
  for (const char* text : {"", "{", "[]", "7", "{} {}"}) {
    small.folder.write("config.json", text);
    expect_invalid({"config.json"}, [&] { open(small); });
  }
}

TEST(FolderModel, RefusesUnknownArchitectures) {
  SmallFolder small;
  small.config["architectures"] = {"MambaForCausalLM"};
  expect_unsupported({"config.json: architectures is MambaForCausalLM, supported: ",
                      "Gemma2ForCausalLM", "Qwen3ForCausalLM"},
                     [&] { open_with(small); });
  small.config["architectures"] = {"Llama\nForCausalLM"};
  expect_unsupported({"architectures is Llama"}, [&] { open_with(small); });
  small.config["architectures"] = {"LlamaForCausalLM", "Qwen2ForCausalLM"};
  expect_invalid({"config.json: architectures has 2 entries, expected one"},
                 [&] { open_with(small); });
  small.config["architectures"] = "LlamaForCausalLM";
  expect_invalid({"architectures is", "expected a list"}, [&] { open_with(small); });
  small.config["architectures"] = {"Qwen2ForCausalLM"};
  open_with(small);
  small.config.erase("architectures");
  small.config.erase("model_type");
  expect_invalid({"config.json: has neither architectures nor model_type"},
                 [&] { open_with(small); });
  small.config["model_type"] = "mamba";
  expect_unsupported({"config.json: model_type is mamba, supported: gemma2, gemma3_text"},
                     [&] { open_with(small); });
  small.config["model_type"] = "qwen2";
  open_with(small);
}

TEST(FolderModel, SaysWhatAFolderWithoutAModelIs) {
  const SmallFolder small;
  expect_invalid({"has no config.json, expected a folder that transformers saved, or a GGUF"},
                 [&] { open(small); });
  small.folder.write("adapter_config.json", "{}");
  expect_invalid({"is the folder of an adapter"}, [&] { open(small); });
  small.folder.write("tiny.gguf", "GGUF");
  expect_invalid({"has no config.json but has GGUF files; name one of them", "tiny.gguf"},
                 [&] { open(small); });
  small.folder.write("config.json", small.config.dump());
  small.folder.write("pytorch_model.bin", "PK");
  expect_unsupported({"pytorch_model.bin: holds pickles", "python -c \"import transformers"},
                     [&] { open(small); });
}

/// At any place, and whether or not the family reads it.
TEST(FolderModel, RefusesKnownSettingsOfAWrongType) {
  const std::vector<std::pair<const char*, nlohmann::json>> wrong = {
      {"rope_scaling", "yarn"},          {"rope_scaling", 8.0},
      {"rope_parameters", 255},          {"use_cache", "true"},
      {"sliding_window", "7"},           {"max_window_layers", 1.5},
      {"attention_dropout", "0"},        {"model_type", 3},
      {"layer_types", "full_attention"}, {"mlp_bias", 1},
      {"architectures", "Qwen"}};
  for (const auto& [key, value] : wrong) {
    SmallFolder small;
    small.config[key] = value;
    expect_invalid({"config.json: ", key, " is ", ", expected "}, [&] { open_with(small); });
  }
  SmallFolder small;
  small.config["rope_scaling"] = {{"rope_type", "default"}, {"factor", "8"}};
  expect_invalid({"config.json: rope_scaling.factor is \"8\", expected a number"},
                 [&] { open_with(small); });
  small.config["rope_scaling"] = {{"rope_type", "default"}, {"new", 1}};
  small.write_all();
  EXPECT_EQ(FolderModel(small.path()).unread_settings(),
            std::vector<std::string>{"rope_scaling.new"});
  small.folder.write("generation_config.json", R"({"temperature": "0.7"})");
  expect_invalid({"generation_config.json: temperature is \"0.7\", expected a number"},
                 [&] { (void)FolderModel(small.path()).generation_config(); });
  small.folder.write("generation_config.json", "{}");
  small.folder.write("tokenizer_config.json", R"({"pad_token": 3})");
  expect_invalid({"tokenizer_config.json: pad_token is 3, expected a string or an object"},
                 [&] { open(small); });
}

TEST(FolderModel, RefusesQuantizedWeights) {
  for (const char* method : {"awq", "gptq", "bitsandbytes", "fp8"}) {
    SmallFolder small;
    small.config["quantization_config"] = {{"quant_method", method}, {"bits", 4}};
    expect_unsupported(
        {"config.json: quantization_config.quant_method is ", method, "bfloat16 or as GGUF"},
        [&] { open_with(small); });
  }
  SmallFolder small;
  small.config["quantization_config"] = {{"bits", 4}};
  expect_unsupported({"quant_method is not given"}, [&] { open_with(small); });
}

TEST(FolderModel, RefusesExperts) {
  SmallFolder small;
  small.config["num_experts"] = 8;
  expect_unsupported({"config.json: num_experts is 8, supported: 0"}, [&] { open_with(small); });
}

TEST(FolderModel, ChecksTypesOfLayers) {
  SmallFolder small;
  small.config["use_sliding_window"] = true;
  small.config["sliding_window"] = 4;
  small.config["layer_types"] = {"full_attention"};
  expect_invalid({"config.json: layer_types has 1 entries, expected one for each of 2 layers"},
                 [&] { open_with(small); });
  small.config["layer_types"] = {"full_attention", "chunked_attention"};
  expect_unsupported({"config.json: layer_types holds chunked_attention, supported: "
                      "full_attention, sliding_attention"},
                     [&] { open_with(small); });
  small.config["layer_types"] = {"full_attention", 3};
  expect_invalid({"layer_types is", "expected an array of strings"}, [&] { open_with(small); });
  small.config["layer_types"] = {"sliding_attention", "full_attention"};
  small.write_all();
  const FolderModel model(small.path());
  EXPECT_EQ(model.config().layer(0).window, 4);
  EXPECT_EQ(model.config().layer(1).window, -1);
}

TEST(FolderModel, ChecksExtents) {
  struct Wrong {
    const char* key;
    nlohmann::json value;
    const char* message;
  };
  const std::vector<Wrong> all = {
      {"hidden_size", 0, "hidden_size is 0, expected 1 to "},
      {"hidden_size", "8", "hidden_size is \"8\", expected an integer"},
      {"num_hidden_layers", -2, "num_hidden_layers is -2, expected 1 to "},
      {"num_hidden_layers", 2147483647, "num_hidden_layers is 2147483647, expected up to 65536"},
      {"num_hidden_layers", 1.5, "num_hidden_layers is 1.5, expected an integer"},
      {"vocab_size", 1e30, "vocab_size is 1e+30, expected an integer"},
      {"vocab_size", uint64_t{1} << 63, "vocab_size is 9223372036854775808, expected an integer"},
      {"num_key_value_heads", 3, "num_attention_heads is 2, expected a multiple of"},
      {"head_dim", 5, "heads have 5 elements, expected an even number up to 256"},
      {"head_dim", 258, "heads have 258 elements"},
      {"rms_norm_eps", -1, "rms_norm_eps is -1, expected a number of at least 0"},
      {"hidden_act", "relu", "hidden_act is relu, supported: silu, gelu"},
      {"tie_word_embeddings", 1, "tie_word_embeddings is 1, expected true or false"},
      {"rope_theta", 0, "rope_theta is 0, expected a positive number"},
      {"partial_rotary_factor", 1e300, "partial_rotary_factor is 1e+300, expected up to 1"},
      {"partial_rotary_factor", 0.8, "partial_rotary_factor is 0.8: 3 of the 4 elements of a head"},
      {"rope_scaling",
       {{"rope_type", "longrope"}, {"original_max_position_embeddings", 1e300}},
       "rope_scaling.original_max_position_embeddings is 1e+300, expected an integer"},
      {"rope_scaling", {{"rope_type", "ntk"}, {"factor", 2}}, "rope_scaling.rope_type is ntk"},
      {"rope_scaling", {{"rope_type", "linear"}}, "has no rope_scaling.factor"},
      {"rope_scaling",
       {{"rope_type", "longrope"}, {"short_factor", {1}}, {"long_factor", {1, 1}}},
       "rope_scaling.short_factor has 1 numbers, expected 2"},
      {"rope_scaling",
       {{"rope_type", "longrope"},
        {"original_max_position_embeddings", 1},
        {"factor", 2},
        {"short_factor", {1, 1}},
        {"long_factor", {1, 1}}},
       "original_max_position_embeddings is 1, expected more where longrope"}};
  for (const Wrong& wrong : all) {
    SmallFolder small;
    small.config[wrong.key] = wrong.value;
    const std::string message = testing::message_of([&] { open_with(small); });
    EXPECT_NE(message.find(wrong.message), std::string::npos) << wrong.message << " in " << message;
    EXPECT_EQ(message.find(small.path()), 0u) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(FolderModel, ListsSettingsThatItDoesNotRead) {
  SmallFolder small;
  small.config["attention_dropout"] = 0.1;
  small.config["_sliding_window_pattern"] = 6;  // transformers 5 writes it as well as layer_types
  small.config["logit_bias_of_tomorrow"] = 3;
  small.config["off"] = false;
  small.config["nothing"] = nullptr;
  small.config["alibi"] = true;
  small.write_all();
  const FolderModel model(small.path());
  EXPECT_EQ(model.unread_settings(), (std::vector<std::string>{"alibi", "logit_bias_of_tomorrow"}));
}

TEST(FolderModel, SettingsThatOthersMakeVoidCountAsRead) {
  const auto unread = [](const char* architecture, const nlohmann::json& more) {
    SmallFolder small;
    small.config["architectures"] = {architecture};
    small.config.update(more);
    small.write_all();
    return FolderModel(small.path()).unread_settings();
  };
  const std::vector<std::string> none;
  const nlohmann::json no_window = {{"use_sliding_window", false},
                                    {"sliding_window", 131072},
                                    {"max_window_layers", 21},
                                    {"layer_types", {"full_attention", "full_attention"}}};
  EXPECT_EQ(unread("Qwen2ForCausalLM", no_window), none);
  EXPECT_EQ(unread("Qwen3ForCausalLM", no_window), none);
  EXPECT_EQ(unread("LlamaForCausalLM", no_window).size(), 3u);
  EXPECT_EQ(unread("SmolLM3ForCausalLM", {{"no_rope_layers", {1, 0}},
                                          {"no_rope_layer_interval", 2},
                                          {"layer_types", {"full_attention", "full_attention"}}}),
            none);
  EXPECT_EQ(unread("Phi3ForCausalLM", {{"original_max_position_embeddings", 4096}}), none);
  EXPECT_EQ(unread("Gemma2ForCausalLM",
                   {{"hidden_act", "gelu"}, {"hidden_activation", "gelu_pytorch_tanh"}}),
            none);
}

TEST(FolderModel, ChecksTokensThatEndAnswers) {
  SmallFolder small;
  small.config["eos_token_id"] = {3, 7, 3};
  small.write_all();
  EXPECT_EQ(FolderModel(small.path()).end_tokens(), (std::vector<int32_t>{3, 7}));
  small.folder.write("generation_config.json", R"({"eos_token_id": 9})");
  EXPECT_EQ(FolderModel(small.path()).end_tokens(), (std::vector<int32_t>{9}));
  // No answer has a token without a row.
  for (const char* ids : {"10", "-1", "[-1, 10]", "18446744073709551615"}) {
    small.folder.write("generation_config.json", R"({"eos_token_id": )" + std::string(ids) + "}");
    EXPECT_TRUE(FolderModel(small.path()).end_tokens().empty()) << ids;
  }
  for (const char* ids : {"\"3\"", "1.5", "[\"3\"]", "{}"}) {
    small.folder.write("generation_config.json", R"({"eos_token_id": )" + std::string(ids) + "}");
    expect_invalid({"generation_config.json: eos_token_id is ", ", expected an "},
                   [&] { (void)FolderModel(small.path()).end_tokens(); });
  }
}

TEST(FolderModel, TakesWhatAnswersAreDrawnWith) {
  using Values = std::map<std::string, double, std::less<>>;
  SmallFolder small;
  small.write_all();
  const FolderModel none(small.path());
  EXPECT_EQ(none.generation_config().path, "");
  const auto read = [&small](const std::string& text) {
    small.folder.write("generation_config.json", text);
    return FolderModel(small.path()).generation_config();
  };
  const GenerationConfig all = read(
      R"({"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0, "repetition_penalty": 1.05,
          "max_new_tokens": 2048, "do_sample": true, "bos_token_id": 1, "transformers_version": "4",
          "num_beams": 1, "typical_p": 1.0, "no_repeat_ngram_size": null, "min_length": 0})");
  EXPECT_EQ(all.path, small.path() + "/generation_config.json");
  EXPECT_EQ(all.values, (Values{{"temperature", 0.6},
                                {"top_k", 20},
                                {"top_p", 0.95},
                                {"min_p", 0},
                                {"repetition_penalty", 1.05},
                                {"max_new_tokens", 2048}}));
  EXPECT_EQ(all.not_done, std::vector<std::string>{});
  EXPECT_EQ(read(R"({"temperature": null, "top_k": null})").values, Values{});
  EXPECT_EQ(read(R"({"do_sample": false, "temperature": 0.7, "top_p": 0.5})").values,
            (Values{{"temperature", 0}, {"top_p", 0.5}}));
  EXPECT_EQ(
      read(
          R"({"num_beams": 4, "stop_strings": ["x"], "suppress_tokens": [], "penalty_alpha": 0.6})")
          .not_done,
      (std::vector<std::string>{"num_beams is 4", "penalty_alpha is 0.6",
                                R"(stop_strings is ["x"])"}));
  for (const auto& [text, message] :
       {std::pair(R"({"temperature": "0.6"})", R"(temperature is "0.6", expected a number)"),
        std::pair(R"({"top_k": [20]})", "top_k is [20], expected an integer"),
        std::pair(R"({"top_p": true})", "top_p is true, expected a number"),
        std::pair(R"({"do_sample": 1})", "do_sample is 1, expected true or false")}) {
    expect_invalid({"generation_config.json: ", message}, [&, wrong = text] { (void)read(wrong); });
  }
}

/// The text of a conversation, with tools, which are none, or without.
std::string rendered(const SmallFolder& small, bool with_tools) {
  return FolderModel(small.path())
      .chat_templates()
      .render({.messages = files::parse_json(R"([{"role": "user", "content": "x"}])", "messages"),
               .tools = files::parse_json(with_tools ? "[]" : "null", "tools")},
              {});
}

TEST(FolderModel, TemplatesOfOtherNamesAreFilesOfAFolder) {
  SmallFolder small;
  small.write_all();
  EXPECT_TRUE(FolderModel(small.path()).chat_templates().empty());
  small.folder.write("chat_template.json", R"({"chat_template": "of the processor"})");
  EXPECT_EQ(rendered(small, true), "of the processor");
  small.folder.write("tokenizer_config.json", R"({"chat_template": "of the settings"})");
  std::filesystem::create_directory(small.folder.path() / "additional_chat_templates");
  small.folder.write("additional_chat_templates/README.md", "{% wrong");
  EXPECT_EQ(rendered(small, true), "of the settings");

  // Alone, they count and the settings do not.
  const std::string tool_use =
      small.folder.write("additional_chat_templates/tool_use.jinja", "for tools");
  EXPECT_EQ(rendered(small, true), "for tools");
  expect_unsupported({"no chat template named \"default\"; there are 'tool_use'"},
                     [&] { (void)rendered(small, false); });
  const std::vector<std::string> files = FolderModel(small.path()).file_paths();
  EXPECT_EQ(std::ranges::count(files, tool_use), 1);

  small.folder.write("chat_template.jinja", "for all");
  EXPECT_EQ(rendered(small, true), "for tools");
  EXPECT_EQ(rendered(small, false), "for all");
  small.folder.write("additional_chat_templates/default.jinja", "another");
  EXPECT_EQ(rendered(small, false), "another");
  std::filesystem::remove(small.folder.path() / "chat_template.jinja");
  EXPECT_EQ(rendered(small, false), "another");
  small.folder.write("additional_chat_templates/tool_use.jinja", "{% if");
  expect_invalid({"additional_chat_templates (tool_use)"}, [&] { (void)rendered(small, true); });
}

TEST(FolderModel, ChecksShapesOfTensors) {
  SmallFolder small;
  small.shapes["model.layers.1.self_attn.k_proj.weight"] = {8, 8};
  expect_invalid({"model.safetensors: tensor 'model.layers.1.self_attn.k_proj.weight' is [8, 8] "
                  "of rank 2, expected [4, 8] of rank 2"},
                 [&] { load(small); });
  small.shapes["model.layers.1.self_attn.k_proj.weight"] = {4, 8};
  small.shapes["model.norm.weight"] = {1, 8};
  expect_invalid({"'model.norm.weight' is [1, 8] of rank 2, expected [1, 8] of rank 1"},
                 [&] { load(small); });
  small.shapes.erase("model.norm.weight");
  expect_invalid({"model.safetensors: has no tensor 'model.norm.weight'"}, [&] { load(small); });
}

TEST(FolderModel, RefusesTensorsWithoutAPlace) {
  SmallFolder small;
  small.shapes["model.layers.0.self_attn.o_proj.bias"] = {8};
  expect_unsupported(
      {"tensor 'model.layers.0.self_attn.o_proj.bias' has no place in a qwen2 model of 2 layers"},
      [&] { load(small); });
}

/// A field that is missing is what transformers' class takes for it, and null is not missing.
TEST(FolderModel, WhatAFolderLeavesOut) {
  const auto without = [](const std::string& architecture, const char* key,
                          const nlohmann::json& more) {
    SmallFolder small;
    small.config["architectures"] = {architecture};
    small.config.update(more);
    small.config.erase(key);
    small.write_all();
    return FolderModel(small.path()).config();
  };
  EXPECT_EQ(without("MistralForCausalLM", "head_dim", nlohmann::json::object()).layer(0).window,
            4096);
  EXPECT_EQ(without("MistralForCausalLM", "", {{"sliding_window", nullptr}}).layer(0).window, -1);
  EXPECT_EQ(without("Qwen3ForCausalLM", "head_dim", nlohmann::json::object()).head_dim, 128);
  EXPECT_EQ(without("Qwen3ForCausalLM", "", {{"head_dim", nullptr}}).head_dim, 4);
  EXPECT_EQ(without("Phi3ForCausalLM", "rms_norm_eps", nlohmann::json::object()).rms_epsilon,
            1e-5f);
  EXPECT_EQ(without("LlamaForCausalLM", "rms_norm_eps", nlohmann::json::object()).rms_epsilon,
            1e-6f);
  EXPECT_EQ(
      without("LlamaForCausalLM", "num_key_value_heads", nlohmann::json::object()).num_kv_heads, 2);
  EXPECT_EQ(without("Qwen2ForCausalLM", "max_position_embeddings", nlohmann::json::object())
                .context_length,
            32768);
  EXPECT_EQ(without("Gemma2ForCausalLM", "", nlohmann::json::object()).attention_soft_cap, 50.0f);
  EXPECT_EQ(
      without("Gemma2ForCausalLM", "", {{"attn_logit_softcapping", nullptr}}).attention_soft_cap,
      0.0f);
  EXPECT_EQ(without("Gemma2ForCausalLM", "", nlohmann::json::object()).logits_soft_cap, 30.0f);
}

TEST(FolderModel, GemmaThreeDoesNotCapScores) {
  SmallFolder small;
  small.config["architectures"] = {"Gemma3ForCausalLM"};
  small.config["attn_logit_softcapping"] = 5.0;
  small.write_all();
  const FolderModel model(small.path());
  EXPECT_EQ(model.config().attention_soft_cap, 0.0f);
  EXPECT_EQ(model.unread_settings(), (std::vector<std::string>{"attn_logit_softcapping"}));
}

}  // namespace
}  // namespace heddle::model
