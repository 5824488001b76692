#include "model/model_names.h"

#include <gtest/gtest.h>

#include "gguf_builder.h"

namespace heddle::model {
namespace {

using testing::GgufBuilder;

ModelNames names_of(const std::string& path, std::string_view name = "",
                    std::string_view basename = "", std::string_view size_label = "") {
  GgufBuilder builder;
  if (!name.empty()) builder.value("general.name", name);
  if (!basename.empty()) builder.value("general.basename", basename);
  if (!size_label.empty()) builder.value("general.size_label", size_label);
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

TEST(ModelNames, WhatNamesNothingMayBeAnyModel) {
  const ModelNames names = names_of("model.gguf", "Qwen3 8B");
  for (const char* base_model : {"", "/", "--", "./"}) EXPECT_TRUE(names.may_be(base_model));
}

}  // namespace
}  // namespace heddle::model
