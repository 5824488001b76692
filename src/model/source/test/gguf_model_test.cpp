#include "model/source/gguf_model.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gguf_builder.h"
#include "model/test/llama_file.h"

namespace heddle::model {
namespace {

using Keys = std::vector<std::string>;

/// The settings that a model's reader needs, and a tokenizer.
testing::GgufBuilder least(const std::string& architecture = "llama") {
  testing::GgufBuilder file;
  file.value("general.architecture", architecture);
  const auto extent = [&](const char* key, uint32_t value) {
    file.value(architecture + "." + key, value);
  };
  extent("block_count", 2);
  extent("embedding_length", 8);
  extent("feed_forward_length", 12);
  extent("attention.head_count", 2);
  extent("attention.head_count_kv", 1);
  extent("context_length", 32);
  file.value(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
  write_tokenizer(file, {.control_tokens = {"<s>", "</s>"}, .bos = 256, .eos = 257, .eot = 257});
  file.tensor("token_embd.weight", {8, 258}, 0, std::string(8 * sizeof(float) * 258, '\0'));
  return file;
}

Keys unread(const testing::GgufBuilder& file) {
  const std::string text = file.build();
  return GgufModel(std::as_bytes(std::span(text)), "m.gguf").unread_settings();
}

TEST(GgufModel, ListsSettingsThatItDoesNotRead) {
  EXPECT_EQ(
      unread(least()
                 .value("llama.rope.scale_linear", 4.0f)
                 .value("llama.attention.sliding_window", uint32_t{4096})
                 .value("llama.attention.causal", false)
                 .value("llama.logit_scale", 0.5f)
                 .array("llama.attention.sliding_window_pattern", Keys{"a"})
                 .value("llama.of.tomorrow", "yes")
                 .value("tokenizer.ggml.add_eos_token", true)
                 .value("tokenizer.ggml.of_tomorrow", uint32_t{1})),
      (Keys{"llama.rope.scale_linear", "llama.attention.sliding_window", "llama.attention.causal",
            "llama.logit_scale", "llama.attention.sliding_window_pattern", "llama.of.tomorrow",
            "tokenizer.ggml.add_eos_token", "tokenizer.ggml.of_tomorrow"}));
}

TEST(GgufModel, TakesWhatAnswersAreDrawnWith) {
  using Values = std::map<std::string, double, std::less<>>;
  const auto read = [](const testing::GgufBuilder& file) {
    const std::string text = file.build();
    return GgufModel(std::as_bytes(std::span(text)), "m.gguf").generation_config();
  };
  EXPECT_EQ(read(least()).values, Values{});
  EXPECT_EQ(read(least()
                     .value("general.sampling.temp", 0.5f)
                     .value("general.sampling.top_k", int32_t{20})
                     .value("general.sampling.top_p", 0.75f)
                     .value("general.sampling.min_p", 0.25f)
                     .value("general.sampling.penalty_repeat", 1.5f))
                .values,
            (Values{{"temperature", 0.5},
                    {"top_k", 20},
                    {"top_p", 0.75},
                    {"min_p", 0.25},
                    {"repetition_penalty", 1.5}}));
  const GenerationConfig of_last = read(least()
                                            .value("general.sampling.penalty_repeat", 1.5f)
                                            .value("general.sampling.penalty_last_n", int32_t{64})
                                            .value("general.sampling.mirostat", int32_t{2}));
  EXPECT_EQ(of_last.not_done,
            (Keys{"general.sampling.penalty_last_n is 64", "general.sampling.mirostat is not 0"}));
  EXPECT_EQ(read(least()
                     .value("general.sampling.penalty_repeat", 1.5f)
                     .value("general.sampling.penalty_last_n", int32_t{0}))
                .values,
            Values{});
}

TEST(GgufModel, AWindowOfAFamilyThatHasOneIsRead) {
  // What llama.cpp's conversion says of OLMo 3, which has no name of its own.
  EXPECT_EQ(unread(least("olmo2").value("olmo2.attention.sliding_window", uint32_t{4096})),
            Keys{"olmo2.attention.sliding_window"});
  EXPECT_EQ(unread(least("gemma2").value("gemma2.attention.sliding_window", uint32_t{4096})),
            Keys{});
}

TEST(GgufModel, AFactorWithoutAKindOfScalingIsNotRead) {
  const auto with_factor = [] { return least().value("llama.rope.scaling.factor", 2.0f); };
  EXPECT_EQ(unread(with_factor()), Keys{"llama.rope.scaling.factor"});
  EXPECT_EQ(unread(with_factor().value("llama.rope.scaling.type", "linear")), Keys{});
}

TEST(GgufModel, IsSilentOnSettingsThatChangeNothing) {
  EXPECT_EQ(unread(least()
                       .value("general.quantization_version", uint32_t{2})
                       .value("general.sampling.temp", 0.6f)
                       .value("quantize.imatrix.chunks_count", uint32_t{128})
                       .value("split.count", uint16_t{1})
                       .value("somebody.quantized_by", "somebody")
                       .value("llamas.of.another.name", uint32_t{3})
                       .value("llama.vocab_size", uint32_t{258})
                       .value("llama.tensor_data_layout", "Meta AI original pth")
                       .value("llama.rope.dimension_count", uint32_t{4})
                       .value("llama.rope.scaling.finetuned", true)
                       .value("llama.attention.causal", true)
                       .value("llama.expert_used_count", uint32_t{0})
                       .value("llama.pooling_type", uint32_t{0})
                       .value("llama.use_parallel_residual", false)
                       .value("tokenizer.ggml.add_space_prefix", true)
                       .value("tokenizer.ggml.add_eos_token", false)
                       .value("tokenizer.ggml.add_sep_token", false)
                       .value("tokenizer.ggml.fim_pre_token_id", uint32_t{3})
                       .value("tokenizer.ggml.padding_token_id", uint32_t{4})
                       .array("tokenizer.ggml.scores", std::vector<float>(258, 0.5f))
                       .value("tokenizer.ggml.token_type_count", uint32_t{2})
                       .value("tokenizer.huggingface.json", "{}")
                       .value("tokenizer.chat_template", "{{ messages }}")
                       .value("tokenizer.chat_template.tool_use", "{{ tools }}")
                       .array("tokenizer.chat_templates", Keys{"tool_use"})),
            Keys{});
}

TEST(GgufModel, PoolsAsTheFileSays) {
  const auto settings_of = [](const std::string& text) {
    return GgufModel(std::as_bytes(std::span(text)), "m.gguf").embedding_settings();
  };
  EXPECT_EQ(settings_of(least().build()).pooling, Pooling::kLast);
  const Pooling poolings[] = {Pooling::kLast, Pooling::kMean, Pooling::kFirst, Pooling::kLast};
  for (uint32_t type = 0; type < 4; ++type) {
    const EmbeddingSettings got = settings_of(least().value("llama.pooling_type", type).build());
    EXPECT_EQ(got.pooling, poolings[type]) << type;
    EXPECT_TRUE(got.normalizes);
    EXPECT_EQ(got.unsupported, "");
    EXPECT_EQ(unread(least().value("llama.pooling_type", type)), Keys{});
  }
  EXPECT_EQ(settings_of(least().value("llama.pooling_type", uint32_t{4}).build()).unsupported,
            "m.gguf: llama.pooling_type is 4, which is not supported; 1 (mean), 2 (cls) and 3 "
            "(last) are");
}

TEST(GgufModel, TheFileHasTheSettings) {
  const std::string text = least().build();
  EXPECT_EQ(GgufModel(std::as_bytes(std::span(text)), "m.gguf").settings_path(), "m.gguf");
}

}  // namespace
}  // namespace heddle::model
