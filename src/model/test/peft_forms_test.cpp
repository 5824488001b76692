#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/test/peft_cases.h"
#include "temp_folder.h"

// Other forms than the plain one that trainers and versions of PEFT save.

namespace heddle::model {
namespace {

using namespace peft_cases;
using testing::expect_invalid;

TEST(PeftForms, TakesTheNamesThatTrainersLeave) {
  const std::string before = whole_adapter()[0].name, tail = before.substr(17);  // model.layers...
  ASSERT_EQ(tail.substr(0, 12), "model.layers");
  const std::vector<std::string> names = {
      "_orig_mod." + before,
      "module." + before,
      "base_model.model._orig_mod." + tail,
      "_fsdp_wrapped_module." + before,
      "base_model.model.module." + tail,
      "base_model.model." + tail.substr(6),  // of an AutoModel
      tail,
      "module.base_model.model.model.layers.0._checkpoint_wrapped_module.self_attn.q_proj.lora_A."
      "weight"};
  for (const std::string& name : names) {
    std::vector<Tensor> tensors = whole_adapter();
    tensors[0].name = name;
    const StoredAdapter stored(tensors);
    const PeftAdapter& adapter = stored.adapter;
    adapter.check_fits(small_dims());
    EXPECT_EQ(adapter.pairs().size(), 4u) << name;
    EXPECT_EQ(*adapter.pairs()[0].a, std::byte{'a'}) << name;
    EXPECT_EQ(adapter.pairs()[0].a_name, name);
  }
}

TEST(PeftForms, BringsHalvesOfTwoTypesIntoF32) {
  for (const auto& [of_a, of_b] : {std::pair("BF16", "F32"), {"F32", "F16"}, {"BF16", "F16"}}) {
    std::vector<Tensor> tensors = whole_adapter();
    tensors[0].dtype = of_a;
    tensors[1].dtype = of_b;
    const StoredAdapter stored(tensors);
    const PeftAdapter& adapter = stored.adapter;
    const AdapterPair& pair = adapter.pairs()[0];
    EXPECT_EQ(pair.dtype, DType::kFloat32);
    const auto expected = [](const std::string& dtype, char fill, int64_t count) {
      std::string bytes(static_cast<size_t>(count) * (dtype == "F32" ? 4 : 2), fill);
      return StoredValues{dtype == "F32"   ? DType::kFloat32
                          : dtype == "F16" ? DType::kFloat16
                                           : DType::kBFloat16,
                          1, count, bytes_of(bytes).data()}
          .floats();
    };
    EXPECT_EQ(pair.stored_a().floats(), expected(of_a, 'a', 2 * 4));
    EXPECT_EQ(pair.stored_b().floats(), expected(of_b, 'b', 20 * 2));
    EXPECT_EQ(adapter.pairs()[1].dtype, DType::kFloat16);

    // The values of a file exist after each load.
    const testing::TempFolder folder;
    (void)folder.write("adapter_config.json", kConfig);
    (void)folder.write("adapter_model.safetensors", stored.file);
    PeftAdapter from_file(folder.path());
    EXPECT_EQ(from_file.pairs()[0].dtype, DType::kFloat32);
    for (int i = 0; i < 2; ++i) {
      from_file.load();
      EXPECT_EQ(from_file.pairs()[0].stored_a().floats(), expected(of_a, 'a', 2 * 4));
      EXPECT_EQ(from_file.pairs()[0].stored_b().floats(), expected(of_b, 'b', 20 * 2));
    }
  }
}

TEST(PeftForms, WarnsAsPeftOfModulesWithoutTensors) {
  const auto warnings = [](const std::vector<Tensor>& tensors, const ModelDims& dims) {
    const StoredAdapter stored(tensors);
    const PeftAdapter& adapter = stored.adapter;
    adapter.check_fits(dims);
    return adapter.warnings(dims);
  };
  std::vector<Tensor> tensors = whole_adapter();
  EXPECT_EQ(warnings(tensors, small_dims()), std::vector<std::string>());
  tensors.resize(4);  // the adapter of a model with one layer
  EXPECT_EQ(
      warnings(tensors, small_dims()),
      (std::vector<std::string>{
          "dir/adapter_model.safetensors: has no tensors for 2 modules that target_modules of "
          "dir/adapter_config.json names, the first is model.layers.1.self_attn.q_proj; they "
          "stay as in the base model"}));
  tensors.resize(2);
  ModelDims one_layer = small_dims();
  one_layer.num_layers = 1;
  EXPECT_EQ(warnings(tensors, one_layer),
            (std::vector<std::string>{
                "dir/adapter_model.safetensors: has no tensors for 1 module that target_modules of "
                "dir/adapter_config.json names, the first is model.layers.0.mlp.down_proj; it "
                "stays as in the base model"}));
  // q_proj of the adapter is a part of qkv_proj
  one_layer.block.sites[llama::kQkvSite].is_fused = true;
  tensors = whole_adapter();
  tensors.resize(4);
  EXPECT_EQ(warnings(tensors, one_layer), std::vector<std::string>());
}

TEST(PeftForms, ReadsBiasesInPlaceOfTheLayers) {
  std::vector<Tensor> tensors = whole_adapter();
  const std::string bias = "base_model.model.model.layers.0.self_attn.q_proj.base_layer.bias";
  tensors.push_back({bias, "F32", {20}});
  expect_refused({"base_layer.bias' is present, but bias of", "is \"none\""}, tensors);
  std::string config = kConfig;
  config.back() = ',';
  for (const char* which : {"all", "lora_only"}) {
    const std::string file = file_of(tensors);
    const PeftAdapter adapter(config + R"("bias": ")" + which + "\"}", bytes_of(file), "dir");
    EXPECT_EQ(adapter.pairs()[0].layer_bias.num_elements(), 20);
    EXPECT_EQ(adapter.pairs()[0].layer_bias.name, bias);
    EXPECT_FALSE(adapter.pairs()[1].layer_bias.is_present());  // a layer without a bias
  }
  tensors.back().name = "base_model.model.model.layers.0.self_attn.k_proj.base_layer.bias";
  expect_refused({"k_proj.base_layer.bias' has no partner"}, tensors, config + R"("bias": "all"})");
}

TEST(PeftForms, TakesAModuleThatIsSavedUnderTwoNames) {
  const std::string config = R"({"peft_type": "LORA", "modules_to_save": ["embed_tokens"]})";
  const auto read = [&](char of_second) {
    SafetensorsBuilder builder;
    builder.tensor(kEmbedding + "modules_to_save.weight", "F32", {8, 4}, std::string(128, 'x'));
    builder.tensor(kEmbedding + "weight", "F32", {8, 4}, std::string(128, of_second));
    builder.tensor(kEmbedding + "original_module.weight", "F32", {8, 4}, std::string(128, 'o'));
    const std::string file = builder.build();
    const PeftAdapter adapter(config, bytes_of(file), "dir");
    EXPECT_EQ(*adapter.embedding().weight.data, std::byte{'x'});
    EXPECT_TRUE(adapter.head().is_empty());
  };
  read('x');
  expect_invalid({"embed_tokens.modules_to_save.weight' and 'base_model", "for the same place"},
                 [&] { read('y'); });
}

}  // namespace
}  // namespace heddle::model
