#include "model/model_names.h"

#include <gtest/gtest.h>

#include "gguf_builder.h"

namespace heddle::model {
namespace {

using testing::GgufBuilder;

ModelNames names_of(const std::string& path, std::string_view name = "",
                    std::string_view basename = "", std::string_view size_label = "",
                    std::string_view finetune = "") {
  GgufBuilder builder;
  if (!name.empty()) builder.value("general.name", name);
  if (!basename.empty()) builder.value("general.basename", basename);
  if (!size_label.empty()) builder.value("general.size_label", size_label);
  if (!finetune.empty()) builder.value("general.finetune", finetune);
  const std::string bytes = builder.build();
  const files::GgufFile file(std::as_bytes(std::span(bytes.data(), bytes.size())), path);
  return read_model_names(file);
}

TEST(ModelNames, TheFileIsNamedLikeTheModel) {
  for (const char* path :
       {"/models/SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct.gguf",
        "SmolLM2-135M-Instruct-f16.gguf", "a/SmolLM2-135M-Instruct-Q4_K_M.gguf",
        "SmolLM2-135M-Instruct.IQ2_XXS.gguf", "SmolLM2_135M_Instruct-BF16.gguf"}) {
    const ModelNames names = names_of(path);
    EXPECT_TRUE(names.may_be("HuggingFaceTB/SmolLM2-135M-Instruct")) << path;
    EXPECT_TRUE(names.may_be("/home/me/smollm2-135m-instruct/")) << path;
    EXPECT_TRUE(names.may_be("/hub/models--acme--SmolLM2-135M-Instruct/snapshots/0a1b")) << path;
    EXPECT_FALSE(names.may_be("/hub/models--acme--SmolLM2-360M-Instruct/snapshots/0a1b")) << path;
    EXPECT_FALSE(names.may_be("HuggingFaceTB/SmolLM2-135M")) << path;
    EXPECT_FALSE(names.may_be("HuggingFaceTB/SmolLM2-360M-Instruct")) << path;
    EXPECT_FALSE(names.may_be("Q4_1")) << path;
  }
}

TEST(ModelNames, SettingsNameItWhateverTheFileIsCalled) {
  const ModelNames by_name = names_of("model.gguf", "Qwen3 8B");
  EXPECT_TRUE(by_name.may_be("Qwen/Qwen3-8B"));
  EXPECT_FALSE(by_name.may_be("Qwen/Qwen3-8B-Base"));
  const ModelNames by_family = names_of("model.gguf", "Something Else", "smollm2", "135M");
  EXPECT_TRUE(by_family.may_be("HuggingFaceTB/SmolLM2-135M-Instruct"));
  EXPECT_FALSE(by_family.may_be("HuggingFaceTB/SmolLM2-1.7B-Instruct"));
  EXPECT_TRUE(names_of("model.gguf", "", "smollm2").may_be("model"));
  EXPECT_FALSE(names_of("model.gguf", "", "smollm2").may_be("smollm2-135M"));
}

TEST(ModelNames, CopiesWithOtherWeightsAreTheSameModel) {
  const ModelNames folder = folder_model_names("/models/Llama-3.2-1B-Instruct", "");
  const ModelNames file = names_of("Llama-3.2-1B-Instruct-Q4_K_M.gguf");
  for (const ModelNames& names : {folder, file}) {
    for (const char* copy :
         {"-bnb-4bit", "-unsloth-bnb-4bit", "-bnb-8bit", "-AWQ", "-GPTQ-Int4", "-GPTQ-Int8",
          "-GGUF", "-4bit", "-4bit-mlx", "-mlx-8bit", "-FP8", "-FP8-dynamic", "-quantized.w4a16",
          "-AWQ-INT4", "-bf16", "-Q4_K_M-GGUF", ""}) {
      EXPECT_TRUE(names.may_be(std::string("unsloth/Llama-3.2-1B-Instruct") + copy)) << copy;
      EXPECT_FALSE(names.may_be(std::string("unsloth/Llama-3.2-1B") + copy)) << copy;
      EXPECT_FALSE(names.may_be(std::string("unsloth/Llama-3.2-3B-Instruct") + copy)) << copy;
    }
    EXPECT_TRUE(names.may_be("meta-llama/Meta-Llama-3.2-1B-Instruct"));
  }
  const ModelNames packed = folder_model_names("/models/Qwen3-8B-unsloth-bnb-4bit", "");
  EXPECT_TRUE(packed.may_be("Qwen/Qwen3-8B"));
  EXPECT_TRUE(packed.may_be("Qwen/Qwen3-8B-AWQ"));
  EXPECT_FALSE(packed.may_be("Qwen/Qwen3-4B"));
}

TEST(ModelNames, AFamilyIsThatOfModelsThatFollowInstructionsOrOfOthers) {
  const ModelNames tuned = names_of("model.gguf", "", "Llama-3.2", "1B", "Instruct");
  EXPECT_TRUE(tuned.may_be("unsloth/Llama-3.2-1B-Instruct-bnb-4bit"));
  EXPECT_FALSE(tuned.may_be("unsloth/Llama-3.2-1B-bnb-4bit"));
  const ModelNames other = names_of("model.gguf", "", "gemma-3", "1b", "pt");
  EXPECT_TRUE(other.may_be("google/gemma-3-1b-pt"));
  EXPECT_FALSE(other.may_be("google/gemma-3-1b-it"));
}

TEST(ModelNames, WhatNamesNothingMayBeAnyModel) {
  const ModelNames names = names_of("model.gguf", "Qwen3 8B");
  for (const char* base_model : {"", "/", "--", "./"}) EXPECT_TRUE(names.may_be(base_model));
}

}  // namespace
}  // namespace heddle::model
