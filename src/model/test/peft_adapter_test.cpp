#include "model/adapters/peft_adapter.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "model/test/peft_cases.h"
#include "readers/clean_message.h"
#include "readers/linear_time.h"
#include "temp_folder.h"

namespace heddle::model {
namespace {

using namespace peft_cases;
using testing::expect_invalid;
using testing::expect_unsupported;

TEST(PeftAdapter, ReadsPairsInTheOrderOfTheModel) {
  for (const std::string dtype : {"F32", "F16", "BF16"}) {
    std::vector<Tensor> tensors = whole_adapter();
    for (Tensor& tensor : tensors) tensor.dtype = dtype;
    const StoredAdapter stored(tensors);
    const PeftAdapter& adapter = stored.adapter;
    adapter.check_fits(small_dims());
    ASSERT_EQ(adapter.pairs().size(), 4u);
    const AdapterPair& q = adapter.pairs()[2];
    EXPECT_EQ(q.layer, 1);
    EXPECT_EQ(q.module->name, "self_attn.q_proj");
    EXPECT_EQ(q.rank, 2);
    EXPECT_EQ(q.in_features, 4);
    EXPECT_EQ(q.out_features, 20);
    EXPECT_EQ(q.scale, 3.0f);
    EXPECT_STREQ(name(q.dtype), dtype == "F32" ? "f32" : dtype == "F16" ? "f16" : "bf16");
    EXPECT_EQ(*q.a, std::byte{'e'});
    EXPECT_EQ(*q.b, std::byte{'f'});
    const AdapterPair& down = adapter.pairs()[3];
    EXPECT_EQ(down.module->name, "mlp.down_proj");
    EXPECT_EQ(down.rank, 1);
    EXPECT_EQ(down.scale, 6.0f);
    EXPECT_EQ(*down.b, std::byte{'h'});
  }
}

TEST(PeftAdapter, TakesNamesWithTheAdaptersNameLeftIn) {
  std::vector<Tensor> tensors = whole_adapter();
  const std::string before = tensors[0].name;
  tensors[0].name = before.substr(0, before.size() - 6) + "default.weight";
  EXPECT_EQ(StoredAdapter(tensors).adapter.pairs().size(), 4u);
  tensors.push_back({before, "F16", {2, 4}});
  expect_refused({"lora_A.default.weight' and 'base_model", "are for the same place"}, tensors);
  tensors.pop_back();
  tensors[0].name = before.substr(0, before.size() - 6) + "sql.weight";
  EXPECT_EQ(StoredAdapter(tensors).adapter.pairs().size(), 4u);
  tensors[1].name = tensor_name(0, "self_attn.q_proj", "lora_B.cron");
  expect_refused({"has tensors of two adapters, 'sql' and 'cron'; save each in a folder"}, tensors);
}

TEST(PeftAdapter, FitsTheLinearLayersThatTheModelHas) {
  std::vector<Tensor> tensors = whole_adapter();
  for (const int layer : {0, 1}) {  // instead of q_proj
    const auto first = size_t(4 * layer);
    tensors[first].name = tensor_name(layer, "self_attn.qkv_proj", "lora_A");
    tensors[first + 1].name = tensor_name(layer, "self_attn.qkv_proj", "lora_B");
  }
  const std::string config = R"({"peft_type": "LORA", "r": 2, "lora_alpha": 6,
      "rank_pattern": {"down_proj": 1}, "target_modules": ["qkv_proj", "down_proj"]})";
  const auto fit = [&](const ModelDims& dims, int64_t rows_of_b) {
    tensors[1].shape = tensors[5].shape = {rows_of_b, 2};
    StoredAdapter(tensors, config).adapter.check_fits(dims);
  };
  ModelDims fused = small_dims();
  fused.block.sites[llama::kQkvSite].is_fused = true;
  const int64_t all_rows = fused.block.dims_of({llama::kQ, 3}).out;
  for (const ModelDims& dims : {fused, small_dims()}) {  // the rows of q, k and v one after another
    EXPECT_NO_THROW(fit(dims, all_rows));
    testing::expect_invalid({"self_attn.qkv_proj.lora_B.weight' gives", "features"},
                            [&] { fit(dims, all_rows + 1); });
  }
}

TEST(PeftAdapter, RefusesTensorsThatAreNoPartOfIt) {
  for (const std::string name : {
           "base_model.model.model.embed_tokens.lora_A.weight",
           "base_model.model.lm_head.lora_embedding_A",
           "base_model.model.lm_head.bias",
           "base_model.model.model.norm.weight",
           "base_model.model.model.layers.0.self_attn.q_proj.lora_C.weight",
           "base_model.model.model.layers.0.self_attn.q_proj_.lora_A.weight",
           "base_model.model.model.layers.0.self_attn.kv_proj.lora_A.weight",
           "base_model.model.model.layers.0.mlp.q_proj.lora_A.weight",
           "base_model.model.model.layers.00.self_attn.q_proj.lora_A.weight",
           "base_model.model.model.layers.x.self_attn.q_proj.lora_A.weight",
           "base_model.model.model.layers.9999999999.self_attn.q_proj.lora_A.weight",
           "base_model.model.model.layers.1.lora_A.weight",
           "base_model.model.model.embed_tokens_lora_embedding_A",
           "base_model.model.model.layers.0.self_attn.q_proj.lora_A.one.two.weight",
           "base_model.model.encoder.layers.0.self_attn.q_proj.lora_A.weight",
           "base_model.model.model.layers.0.self_attn.q_proj.weight",
       }) {
    std::vector<Tensor> tensors = whole_adapter();
    tensors.push_back({name, "F16", {2, 4}});
    expect_refused(ErrorCode::kUnsupported,
                   {"dir/adapter_model.safetensors: tensor '", name.c_str(), "is not lora_A"},
                   tensors);
  }
  expect_refused({"dir/adapter_model.safetensors: holds no tensor"}, {});
}

TEST(PeftAdapter, RefusesHalvesThatDoNotBelongTogether) {
  std::vector<Tensor> tensors = whole_adapter();
  tensors.erase(tensors.begin() + 1);
  expect_refused({"lora_A.weight' has no partner "
                  "'base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight'"},
                 tensors);
  tensors = whole_adapter();
  tensors.erase(tensors.begin());
  expect_refused({"lora_B.weight' has no partner 'base_model", "lora_A.weight'"}, tensors);
  tensors = whole_adapter();
  tensors[1].shape = {20, 3};
  expect_refused(
      {"layers.0.self_attn.q_proj.lora_A.weight' has shape [2, 4], rank 2", "[20, 3], rank 3"},
      tensors);
  tensors = whole_adapter();
  tensors[0].shape = {8};
  expect_refused({"lora_A.weight' has shape [8], expected two extents"}, tensors);
  tensors[0].shape = {0, 4};
  expect_refused({"lora_A.weight' has shape [0, 4], expected two extents of 1 or more"}, tensors);
  tensors = whole_adapter();
  tensors[0].dtype = tensors[1].dtype = "U8";
  expect_refused(ErrorCode::kUnsupported, {"lora_A.weight' has type U8, supported: F32, F16, BF16"},
                 tensors);
}

TEST(PeftAdapter, ReadsWhatBelongsToAPair) {
  const std::string prefix = "base_model.model.model.layers.0.self_attn.q_proj.";
  for (const auto& [field, own, older] :
       {std::tuple("use_dora", "lora_magnitude_vector", "lora_magnitude_vector.default.weight"),
        {"lora_bias", "lora_B.bias", "lora_B.default.bias"}}) {
    const std::string config =
        std::string(R"({"peft_type": "LORA", "r": 2, ")") + field + R"(": true})";
    std::vector<Tensor> tensors = whole_adapter();
    tensors.resize(2);
    expect_refused({"has no tensor '", prefix.c_str(), own, field, "is true"}, tensors, config);
    for (const char* const spelling : {own, older}) {
      tensors.resize(2);
      tensors.push_back({prefix + spelling, "F32", {20}});
      const StoredAdapter stored(tensors, config);
      const PeftAdapter& adapter = stored.adapter;
      const AdapterPair& pair = adapter.pairs().at(0);
      const StoredValues& values = field[0] == 'u' ? pair.magnitude : pair.bias;
      EXPECT_EQ(values.num_elements(), 20);
      EXPECT_EQ(*values.data, std::byte{'c'});
      EXPECT_FALSE((field[0] == 'u' ? pair.bias : pair.magnitude).is_present());
    }
    expect_refused({"is present, but", field, "is false"}, tensors,
                   R"({"peft_type": "LORA", "r": 2})");
    tensors[2].shape = {21};
    expect_refused({"has shape [21], expected [20]"}, tensors, config);
    tensors[2].shape = {20};
    tensors.erase(tensors.begin(), tensors.begin() + 2);
    expect_refused({"has no partner '", prefix.c_str(), "lora_A.weight'"}, tensors, config);
  }
}

TEST(PeftAdapter, ReadsAnEmbeddingAndAHead) {
  const std::string config = R"({"peft_type": "LORA", "r": 2, "target_modules": ["lm_head"],
      "modules_to_save": ["model.embed_tokens"], "trainable_token_indices": {"lm_head": [3, 1]}})";
  const std::vector<Tensor> whole = {
      {kEmbedding + "weight", "BF16", {8, 4}},
      {kHead + "lora_A.weight", "F16", {2, 4}},
      {kHead + "lora_B.weight", "F16", {8, 2}},
      {kHead + "token_adapter.base_layer.weight", "F32", {8, 4}},
      {kHead + "token_adapter.trainable_tokens_delta", "F32", {2, 4}}};
  ModelDims dims = small_dims();
  dims.hidden_size = 4;
  dims.vocab_size = 7;
  const auto fit = [&](const std::vector<Tensor>& tensors) {
    const StoredAdapter stored(tensors, config);
    const PeftAdapter& adapter = stored.adapter;
    adapter.check_fits(dims);
    EXPECT_TRUE(adapter.pairs().empty());
    EXPECT_EQ(adapter.embedding().weight.dtype, DType::kBFloat16);
    EXPECT_FALSE(adapter.embedding().pair);
    EXPECT_EQ(adapter.head().pair->out_features, 8);
    EXPECT_EQ(adapter.head().weight.rows, 8);
    EXPECT_EQ(adapter.head().token_ids, (std::vector<int32_t>{3, 1}));
    EXPECT_EQ(*adapter.head().token_rows.data, std::byte{'e'});
  };
  fit(whole);
  const auto refused = [&](std::initializer_list<const char*> parts, size_t tensor,
                           std::vector<int64_t> shape) {
    std::vector<Tensor> tensors = whole;
    tensors[tensor].shape = std::move(shape);
    testing::expect_invalid(parts, [&] { fit(tensors); });
  };
  refused({"its embedding has rows of 5 features, the model's hidden size is 4"}, 0, {8, 5});
  refused({"weight' has shape [8], expected two extents"}, 0, {8});
  refused({"its head gives 8 tokens, its embedding has 7"}, 0, {7, 4});
  refused({"adapts a head that takes 4 features and gives 9, it takes 4 and gives 8"}, 2, {9, 2});
  refused({"adapts a head that takes 3 features"}, 1, {2, 3});
  refused({"has its own token 3 in its head, which has 3 tokens"}, 3, {3, 4});
  refused({"trainable_tokens_delta' has 3 rows, trainable_token_indices of", "has 2 tokens"}, 4,
          {3, 4});
  const auto without = [&](std::initializer_list<const char*> parts, size_t first, size_t count) {
    std::vector<Tensor> tensors = whole;
    const auto begin = tensors.begin() + static_cast<std::ptrdiff_t>(first);
    tensors.erase(begin, begin + static_cast<std::ptrdiff_t>(count));
    testing::expect_invalid(parts, [&] { fit(tensors); });
  };
  without({"has no tensor 'base_model.model.model.embed_tokens.weight', yet", "modules_to_save"}, 0,
          1);
  without({"has 0 rows, trainable_token_indices"}, 4, 1);
  std::vector<Tensor> twice = whole;
  twice.push_back({kHead + "base_layer.weight", "F32", {8, 4}});
  testing::expect_invalid({"are for the same place"}, [&] { fit(twice); });
  std::vector<Tensor> original = whole;
  original.push_back({kEmbedding + "original_module.weight", "F32", {7, 4}});
  EXPECT_NO_THROW(fit(original));
  original.back().shape = {7};
  testing::expect_invalid({"original_module.weight' has shape [7], expected two"},
                          [&] { fit(original); });
}

TEST(PeftAdapter, TakesWhatIsTiedToATarget) {
  const std::vector<Tensor> tensors = {{kEmbedding + "lora_embedding_A", "F16", {2, 7}},
                                       {kEmbedding + "lora_embedding_B", "F16", {4, 2}},
                                       {kHead + "lora_A.weight", "F16", {2, 4}},
                                       {kHead + "lora_B.weight", "F16", {7, 2}}};
  const auto config = [](const char* tying) {
    return std::string(R"({"peft_type": "LORA", "r": 2, "target_modules": ["embed_tokens"],
        "ensure_weight_tying": )") +
           tying + "}";
  };
  expect_refused({"lm_head.lora_A.weight' is for a module that target_modules"}, tensors,
                 config("false"));
  const StoredAdapter stored(tensors, config("true"));
  const PeftAdapter& adapter = stored.adapter;
  EXPECT_TRUE(adapter.embedding().pair && adapter.head().pair);
  expect_refused(ErrorCode::kUnsupported, {"alora_invocation_tokens is set", "adapted embedding"},
                 tensors, config(R"(true, "alora_invocation_tokens": [1])"));
}

TEST(PeftAdapter, RefusesRanksThatTheConfigDoesNotGiveOrThatAreTooLarge) {
  std::vector<Tensor> tensors = whole_adapter();
  tensors[0].shape = {3, 4};
  tensors[1].shape = {20, 3};
  expect_refused({"dir/adapter_model.safetensors: tensor 'base_model", "lora_A.weight' has rank 3",
                  "dir/adapter_config.json gives it rank 2"},
                 tensors);
  const std::string config = R"({"peft_type": "LORA", "r": 513})";
  tensors = {{tensor_name(0, "self_attn.v_proj", "lora_A"), "F16", {513, 6}},
             {tensor_name(0, "self_attn.v_proj", "lora_B"), "F16", {22, 513}}};
  expect_refused(ErrorCode::kUnsupported,
                 {"v_proj.lora_A.weight' has rank 513, supported: up to 512"}, tensors, config);
}

TEST(PeftAdapter, TakesTheLargestRank) {
  const std::string file =
      file_of({{tensor_name(0, "self_attn.v_proj", "lora_A"), "F16", {512, 6}},
               {tensor_name(0, "self_attn.v_proj", "lora_B"), "F16", {22, 512}}});
  const PeftAdapter adapter(R"({"peft_type": "LORA", "r": 512})", bytes_of(file), "dir");
  ASSERT_EQ(adapter.pairs().size(), 1u);
  EXPECT_EQ(adapter.pairs()[0].rank, 512);
}

TEST(PeftAdapter, RefusesTheAdapterOfAnotherModel) {
  std::vector<Tensor> tensors = whole_adapter();
  tensors[0].shape = {2, 5};
  expect_refused(
      {"layers.0.self_attn.q_proj.lora_A.weight' takes 5 features, the model's layer has 4"},
      tensors);
  tensors = whole_adapter();
  tensors[7].shape = {27, 1};
  expect_refused(
      {"layers.1.mlp.down_proj.lora_B.weight' gives 27 features, the model's layer has 26"},
      tensors);
  tensors = whole_adapter();
  add_pair(tensors, 2, "self_attn.q_proj", 2, 4, 20);
  expect_refused(
      {"layers.2.self_attn.q_proj.lora_A.weight' is for layer 2, the model has 2 layers"}, tensors);
  tensors = whole_adapter();
  add_pair(tensors, 1, "self_attn.qkv_proj", 2, 4, 63);
  expect_refused({"layers.1.self_attn.q_proj.lora_A.weight' and 'base_model",
                  "layers.1.self_attn.qkv_proj.lora_A.weight' are for the same rows of a layer"},
                 tensors, R"({"peft_type": "LORA", "r": 2, "rank_pattern": {"down_proj": 1}})");
}

TEST(PeftAdapter, TakesTheLayersThatTheConfigNames) {
  const std::string config = R"({"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"],
    "layers_to_transform": [1]})";
  std::vector<Tensor> tensors = {{tensor_name(1, "self_attn.q_proj", "lora_A"), "F16", {2, 4}},
                                 {tensor_name(1, "self_attn.q_proj", "lora_B"), "F16", {20, 2}}};
  const StoredAdapter stored(tensors, config);
  const PeftAdapter& adapter = stored.adapter;
  EXPECT_NO_THROW(adapter.check_fits(small_dims()));
  add_pair(tensors, 0, "self_attn.q_proj", 2, 4, 20);
  expect_refused(
      {"layers.0.self_attn.q_proj.lora_A.weight' is for a module that", "layers_to_transform"},
      tensors, config);
}

TEST(PeftAdapter, NamesTheFileThatIsMissing) {
  const testing::TempFolder folder;
  const std::string path = folder.path().string();
  expect_invalid({path.c_str(), "/adapter_config.json: cannot open: No such file"},
                 [&] { PeftAdapter adapter(path); });
  folder.write("adapter_config.json", kConfig);
  expect_invalid({path.c_str(), "/adapter_model.safetensors: cannot open: No such file"},
                 [&] { PeftAdapter adapter(path); });
  folder.write("adapter_model.bin", "pickle");
  testing::expect_unsupported({path.c_str(), "/adapter_model.bin: is a pickle",
                               "python -c \"import torch, safetensors", "weights_only=True"},
                              [&] { PeftAdapter adapter(path); });
  folder.write("adapter_model.safetensors", file_of(whole_adapter()));
  EXPECT_EQ(PeftAdapter(path).pairs().size(), 4u);
}

TEST(PeftAdapter, FindsSeveralInAFolder) {
  const testing::TempFolder folder;
  const std::string path = folder.path().string();
  EXPECT_TRUE(adapters_in(path).empty());
  EXPECT_TRUE(adapters_in(path + "/missing").empty());
  for (const char* name : {"b", "a"}) {
    std::filesystem::create_directory(folder.path() / name);
    folder.write(std::string(name) + "/adapter_config.json", kConfig);
  }
  std::filesystem::create_directory(folder.path() / "other");
  EXPECT_EQ(adapters_in(path), (std::vector<std::string>{"a", "b"}));
  expect_invalid({path.c_str(), ": holds several adapters, name one of its folders: a, b"},
                 [&] { PeftAdapter adapter(path); });
  folder.write("adapter_config.json", kConfig);
  EXPECT_TRUE(adapters_in(path).empty());
}

/// SmolLM2-135M: hidden size 576, 3 key-value heads of 64, feed-forward 1536.
ModelDims smollm2_135m() {
  return DecoderConfig{.num_layers = 30,
                       .hidden_size = 576,
                       .intermediate_size = 1536,
                       .num_q_heads = 9,
                       .num_kv_heads = 3,
                       .head_dim = 64}
      .dims();
}

struct Expected {
  int64_t rank;
  size_t projections;
  double scale;
};

TEST(PeftAdapter, ReadsTheExamples) {
  const std::map<std::string, Expected> examples = {
      {"iso-date", {8, 7, 2.0}},     {"cron", {32, 2, 32 / std::sqrt(32.0)}},
      {"person-json", {16, 4, 2.0}}, {"sql", {12, 5, 2.0}},
      {"sentiment", {4, 7, 2.0}},    {"shell", {24, 4, 2.0}},
      {"slug", {64, 1, 1.0}},        {"opposite", {1, 7, 4.0}},
  };
  const std::filesystem::path folder =
      std::filesystem::path(HEDDLE_SOURCE_DIR) / "examples/adapters";
  for (const auto& [name, expected] : examples) {
    const PeftAdapter adapter((folder / name).string());
    adapter.check_fits(smollm2_135m());
    EXPECT_EQ(adapter.warnings(smollm2_135m()), std::vector<std::string>());
    EXPECT_EQ(adapter.pairs().size(), 30 * expected.projections) << name;
    EXPECT_EQ(adapter.config().base_model, "HuggingFaceTB/SmolLM2-135M-Instruct");
    for (const AdapterPair& pair : adapter.pairs()) {
      const bool is_sql_down = name == "sql" && pair.module->name == "mlp.down_proj";
      EXPECT_EQ(pair.rank, is_sql_down ? 4 : expected.rank) << name;
      EXPECT_EQ(pair.scale, static_cast<float>(expected.scale)) << name;
      EXPECT_EQ(pair.dtype, DType::kFloat16);
    }
  }
  ModelDims other = smollm2_135m();
  other.num_layers = 32;
  const PeftAdapter adapter((folder / "slug").string());
  adapter.check_fits(other);
  const std::vector<std::string> warnings = adapter.warnings(other);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("has no tensors for 2 modules"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("the first is model.layers.30.self_attn.v_proj"), std::string::npos);
}

TEST(PeftAdapter, QuotesLittleOfTheFiles) {
  const std::string json = nlohmann::json(testing::hostile_text(size_t{4} << 20)).dump();
  const std::string text = json.substr(1, json.size() - 2);
  std::vector<Tensor> tensors = whole_adapter();
  tensors.push_back({text, "F16", {2, 4}});
  testing::expect_clean_message("a tensor's name", [&] { const StoredAdapter stored(tensors); });
  tensors = whole_adapter();
  tensors[0].dtype = text;
  testing::expect_clean_message("a tensor's type", [&] { const StoredAdapter stored(tensors); });
}

TEST(PeftAdapter, TakesTimeInProportionToItsModules) {
  const auto make = [](size_t num_layers) {
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < num_layers; ++i) {
      const int layer = static_cast<int>(i);
      add_pair(tensors, layer, "self_attn.q_proj", 2, 4, 20);
    }
    return file_of(tensors);
  };
  const std::string config = R"({"peft_type": "LORA", "r": 2, "target_modules": ".*q_proj"})";
  testing::expect_linear("modules", 200, make, [&](const std::string& file) {
    const PeftAdapter adapter(config, bytes_of(file), "dir");
  });
}

}  // namespace
}  // namespace heddle::model
