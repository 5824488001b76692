// Folders of EAGLE-3 drafters: what is read of them, and the sentences by which others are refused.
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "model/eagle3/eagle3_config.h"
#include "model/eagle3/eagle3_weights.h"
#include "model/eagle3/test/eagle3_files.h"
#include "model/test/llama_file.h"
#include "model/weights/device_values.h"
#include "temp_folder.h"

namespace heddle::model {
namespace {

using Tensors = std::vector<Eagle3Ref::Tensor>;

class Eagle3Folder : public ::testing::Test {
 protected:
  static ref::Llama target() {
    DecoderConfig config = llama::rotating({.num_layers = 6,
                                            .hidden_size = 16,
                                            .intermediate_size = 8,
                                            .num_q_heads = 2,
                                            .num_kv_heads = 2,
                                            .head_dim = 8,
                                            .vocab_size = 100,
                                            .context_length = 64});
    return random_llama(config, true);
  }

  [[nodiscard]] std::string path() const { return folder_.path().string(); }
  [[nodiscard]] Eagle3Config read(const nlohmann::json& config) const {
    folder_.write("config.json", config.dump());
    return read_eagle3_config(path(), target_.config);
  }
  [[nodiscard]] Eagle3Weights load(const Tensors& tensors) const {
    const Eagle3Config config = read(ref_.config());
    folder_.write("model.safetensors", Eagle3Ref::file_of(tensors));
    return load_eagle3_weights({}, path(), config, target_.config, DType::kFloat32);
  }
  /// The error of the folder with this setting in place of its own.
  [[nodiscard]] std::string error_with(const std::string& key, const nlohmann::json& value) const {
    nlohmann::json config = ref_.config();
    config[key] = value;
    return testing::message_of([&] { (void)read(config); });
  }
  [[nodiscard]] std::string error_of(const std::function<void(Tensors&)>& change) const {
    Tensors tensors = ref_.tensors();
    change(tensors);
    return testing::message_of([&] { (void)load(tensors); });
  }
  static Eagle3Ref::Tensor& tensor(Tensors& tensors, const std::string& name) {
    return *std::ranges::find(tensors, name, &Eagle3Ref::Tensor::name);
  }

  ref::Llama target_ = target();
  Eagle3Ref ref_{target_, {.layers = {1, 3, 5}}};
  testing::TempFolder folder_;
};

TEST_F(Eagle3Folder, SettingsAreThoseOfTheFile) {
  nlohmann::json json = ref_.config();
  json["something"] = 3;
  json["eagle_config"] = {{"use_aux_hidden_state", true}, {"else", 1}};
  json["torch_dtype"] = "bfloat16";
  const Eagle3Config config = read(json);
  EXPECT_EQ(config.hidden_size, 12);
  EXPECT_EQ(config.head_dim, 6);
  EXPECT_EQ(config.draft_vocab_size, 50);
  EXPECT_EQ(config.rope.theta, 1000.0);
  EXPECT_EQ(config.layers, (std::array<int64_t, 3>{1, 3, 5}));
  EXPECT_EQ(config.unread, (std::vector<std::string>{"something", "eagle_config.else"}));
}

TEST_F(Eagle3Folder, TheLayersAreTheUsualOnesOrNamed) {
  nlohmann::json json = ref_.config();
  json.erase("eagle_aux_hidden_state_layer_ids");
  json["eagle_config"] = {{"eagle_aux_hidden_state_layer_ids", {0, 1, 4}}};  // outputs, of SGLang
  EXPECT_EQ(read(json).layers, (std::array<int64_t, 3>{1, 2, 5}));
  json["eagle_aux_hidden_state_layer_ids"] = {1, 2, 5};
  EXPECT_EQ(read(json).layers, (std::array<int64_t, 3>{1, 2, 5}));
  json.erase("eagle_config");
  json.erase("eagle_aux_hidden_state_layer_ids");
  target_.config.num_layers = 32;
  EXPECT_EQ(read(json).layers, (std::array<int64_t, 3>{2, 16, 29}));
  target_.config.num_layers = 4;
  EXPECT_EQ(testing::message_of([&] { (void)read(json); }),
            path() +
                "/config.json: the drafter reads what enters layers 2, 2, 1 of 4, expected "
                "three that ascend from 0 to 3; eagle_aux_hidden_state_layer_ids names others "
                "than 2, n / 2 and n - 3");
}

TEST_F(Eagle3Folder, SettingsThatDoNotFitAreNamed) {
  const std::string file = path() + "/config.json: ";
  EXPECT_EQ(error_with("architectures", {"LlamaForCausalLM"}),
            file +
                "architectures is 'LlamaForCausalLM', expected LlamaForCausalLMEagle3, an "
                "EAGLE-3 drafter as vLLM and SGLang take it");
  EXPECT_EQ(error_with("architectures", nullptr),
            file +
                "architectures is missing, expected LlamaForCausalLMEagle3, an EAGLE-3 drafter "
                "as vLLM and SGLang take it");
  EXPECT_EQ(error_with("vocab_size", 101),
            file +
                "vocab_size is 101, expected that of the model, 100: the drafter was trained "
                "for another one");
  EXPECT_EQ(error_with("target_hidden_size", 32),
            file +
                "target_hidden_size is 32, expected that of the model, 16: the drafter was "
                "trained for another one");
  EXPECT_EQ(error_with("num_hidden_layers", 2),
            file + "num_hidden_layers is 2, supported in an EAGLE-3 drafter: 1");
  EXPECT_EQ(error_with("draft_vocab_size", 101),
            file + "draft_vocab_size is 101, expected at most vocab_size = 100");
  EXPECT_EQ(error_with("attention_bias", true),
            file + "attention_bias is true, supported in an EAGLE-3 drafter: false");
  EXPECT_EQ(error_with("hidden_act", "gelu"),
            file + "hidden_act is 'gelu', supported in an EAGLE-3 drafter: 'silu'");
  EXPECT_EQ(error_with("eagle_config", {{"use_aux_hidden_state", false}}),
            file +
                "eagle_config.use_aux_hidden_state is false, supported in an EAGLE-3 drafter: "
                "true");
  EXPECT_EQ(error_with("eagle_config", {{"eagle_aux_hidden_state_layer_ids", {1, 3, 5}}}),
            file +
                "eagle_config.eagle_aux_hidden_state_layer_ids is 1, 3, 5, the outputs of these "
                "layers, but eagle_aux_hidden_state_layer_ids is 1, 3, 5, the inputs of others");
  EXPECT_EQ(error_with("eagle_aux_hidden_state_layer_ids", {1, 2}),
            file + "eagle_aux_hidden_state_layer_ids has 2 numbers, expected 3");
  EXPECT_EQ(error_with("eagle_aux_hidden_state_layer_ids", {1, 2, 1e300}),
            file +
                "eagle_aux_hidden_state_layer_ids has 1e+300, expected layers of the model, up "
                "to 5");
  EXPECT_EQ(error_with("rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}),
            file +
                "the rotation of an EAGLE-3 drafter depends on the length of a sequence, "
                "supported: default, linear, llama3, yarn");
  for (const nlohmann::json& value : {nlohmann::json(-1), nlohmann::json("x"), nlohmann::json(1.5),
                                      nlohmann::json(int64_t{1} << 40)}) {
    EXPECT_NE(error_with("hidden_size", value).find("hidden_size"), std::string::npos) << value;
  }
  EXPECT_NE(error_with("eagle_config", 3).find("eagle_config"), std::string::npos);
  EXPECT_NE(error_with("eagle_config", {1}).find("eagle_config"), std::string::npos);
  const testing::TempFolder empty;
  EXPECT_EQ(
      testing::message_of([&] { (void)read_eagle3_config(empty.path().string(), target_.config); }),
      empty.path().string() +
          ": has no config.json, expected the folder of an EAGLE-3 drafter (--draft-model)");
}

TEST_F(Eagle3Folder, TensorsMayHaveEitherName) {
  for (const std::string prefix : {"", "model."}) {
    Tensors tensors = ref_.tensors();
    for (Eagle3Ref::Tensor& t : tensors) {
      if (t.name.starts_with("midlayer.")) t.name.replace(0, 9, "layers.0.");
      t.name.insert(0, prefix);
    }
    const Eagle3Weights weights = load(tensors);
    EXPECT_TRUE(weights.has_embedding);
    EXPECT_EQ(weights.q.in_features, 24);
    const TensorView ids = weights.target_ids.view();
    EXPECT_EQ(std::vector<int32_t>(ids.data<int32_t>(), ids.data<int32_t>() + 4),
              (std::vector<int32_t>{0, 4, 8, 12}));
  }
}

TEST_F(Eagle3Folder, TensorsThatDoNotFitAreNamed) {
  const std::string file = path() + "/model.safetensors: ";
  const auto without = [](const std::string& name) {
    return
        [name](Tensors& all) { std::erase_if(all, [&](const auto& t) { return t.name == name; }); };
  };
  EXPECT_EQ(error_of(without("fc.weight")),
            file + "has no tensor 'fc.weight', expected that of an EAGLE-3 drafter");
  EXPECT_EQ(error_of(without("midlayer.hidden_norm.weight")),
            file +
                "has no tensor 'midlayer.hidden_norm.weight', expected that of an EAGLE-3 "
                "drafter");
  EXPECT_EQ(error_of(without("lm_head.weight")),
            file + "has no tensor 'lm_head.weight', expected that of an EAGLE-3 drafter");
  EXPECT_EQ(error_of(without("embed_tokens.weight")),
            file +
                "has no tensor 'embed_tokens.weight', and the model's has 16 values a token, "
                "expected 12");
  EXPECT_EQ(error_of(without("d2t")),
            file +
                "has no tensor 'd2t', which says what tokens its 50 drafts are of the 100 of "
                "the model");
  EXPECT_EQ(error_of([](Tensors& all) {
              tensor(all, "fc.weight").shape = {24, 24};
            }),
            file +
                "tensor 'fc.weight' takes 24 values, expected 48, three hidden states of the "
                "model, which has a hidden_size of 16: the drafter was trained for another one");
  EXPECT_EQ(error_of([](Tensors& all) {
              tensor(all, "midlayer.mlp.up_proj.weight").shape = {12, 20};
            }),
            file + "tensor 'midlayer.mlp.up_proj.weight' is [12, 20], expected [20, 12]");
  EXPECT_EQ(
      error_of([](Tensors& all) { tensor(all, "norm.weight").shape = {}; }).substr(0, file.size()),
      file);
  EXPECT_EQ(error_of([](Tensors& all) {
              tensor(all, "norm.weight").name = "midlayer.self_attn.q_norm.weight";
            }),
            file + "has no tensor 'norm.weight', expected that of an EAGLE-3 drafter");
  EXPECT_EQ(error_of([](Tensors& all) {
              all.push_back({"layers.1.mlp.up_proj.weight", "F32", {1}, std::string(4, '\0')});
            }),
            file +
                "tensor 'layers.1.mlp.up_proj.weight' has no place in an EAGLE-3 drafter of one "
                "layer");
  EXPECT_EQ(error_of([](Tensors& all) {
              tensor(all, "t2d").shape = {10, 10};
            }),
            file + "tensor 't2d' is [10, 10], expected [100]");
  EXPECT_EQ(error_of([](Tensors& all) { tensor(all, "d2t").dtype = "F64"; }),
            file + "tensor 'd2t' is F64, expected I64");
  EXPECT_EQ(error_of([](Tensors& all) {
              const int64_t offset = 98;
              tensor(all, "d2t").data.replace(16, 8, reinterpret_cast<const char*>(&offset), 8);
            }),
            file + "tensor 'd2t' adds 98 to draft 2, expected a token of the model, 0 to 99");
  EXPECT_NE(
      error_of([](Tensors& all) { tensor(all, "norm.weight").dtype = "I32"; }).find("norm.weight"),
      std::string::npos);
  const Eagle3Config config = read(ref_.config());
  const testing::TempFolder other;
  const auto load_other = [&] {
    (void)load_eagle3_weights({}, other.path().string(), config, target_.config, DType::kFloat32);
  };
  EXPECT_EQ(testing::message_of(load_other),
            other.path().string() +
                ": has no model.safetensors, expected the weights of an EAGLE-3 drafter in that "
                "file");
  other.write("pytorch_model.bin", "x");
  EXPECT_NE(testing::message_of(load_other).find("holds pickles"), std::string::npos);
}

}  // namespace
}  // namespace heddle::model
