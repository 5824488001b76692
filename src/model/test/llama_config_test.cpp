// What a file says of a Llama: the defaults of what it leaves out, and what is refused.
#include <map>
#include <string>
#include <variant>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "gguf_builder.h"
#include "model/source/gguf_model.h"
#include "model/test/llama_slices.h"

namespace heddle::model {
namespace {

using Value = std::variant<uint32_t, float, std::string>;
using Values = std::map<std::string, Value>;

/// The least that a file has to say; no two numbers are equal.
Values least() {
  return {{"general.architecture", "llama"},
          {"llama.block_count", 3u},
          {"llama.embedding_length", 48u},
          {"llama.feed_forward_length", 56u},
          {"llama.attention.head_count", 6u},
          {"llama.context_length", 77u},
          {"llama.attention.layer_norm_rms_epsilon", 0.125f}};
}

DecoderConfig config_of(const Values& values) {
  testing::GgufBuilder file;
  for (const auto& [key, value] : values) {
    std::visit([&, name = key](const auto& v) { file.value(name, v); }, value);
  }
  const std::string row(48 * sizeof(float) * 19, '\0');
  file.tensor("token_embd.weight", {48, 19}, 0, row);
  const std::string text = file.build();
  return GgufModel(std::as_bytes(std::span(text)), "m.gguf").config();
}

DecoderConfig with(std::initializer_list<Values::value_type> more) {
  Values values = least();
  for (const auto& [key, value] : more) values[key] = value;
  return config_of(values);
}

TEST(DecoderConfig, WhatAFileLeavesOut) {
  const DecoderConfig config = config_of(least());
  EXPECT_EQ(config.name, "");
  EXPECT_EQ(config.num_layers, 3);
  EXPECT_EQ(config.hidden_size, 48);
  EXPECT_EQ(config.intermediate_size, 56);
  EXPECT_EQ(config.num_q_heads, 6);
  EXPECT_EQ(config.num_kv_heads, 6);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.vocab_size, 19);
  EXPECT_EQ(config.context_length, 77);
  EXPECT_EQ(config.rms_epsilon, 0.125f);
  EXPECT_EQ(config.rotations[0].params, (RopeParams{.theta = 1e4, .scale = 1.0, .rotary_dim = 8}));
}

TEST(DecoderConfig, WidthOfHeadsFollowsFromThoseOfQueries) {
  const DecoderConfig config = with({{"llama.attention.head_count_kv", 2u}});
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 8);
}

TEST(DecoderConfig, WhatAFileSays) {
  const DecoderConfig config = with({{"general.name", "tiny"},
                                     {"llama.attention.head_count_kv", 2u},
                                     {"llama.attention.key_length", 20u},
                                     {"llama.attention.value_length", 20u},
                                     {"llama.rope.freq_base", 5e5f},
                                     {"llama.rope.dimension_count", 12u},
                                     {"llama.rope.scaling.type", "linear"},
                                     {"llama.rope.scaling.factor", 4.0f},
                                     {"llama.expert_count", 0u}});
  EXPECT_EQ(config.name, "tiny");
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 20);
  EXPECT_EQ(config.rotations[0].params, (RopeParams{.theta = 5e5, .scale = 4.0, .rotary_dim = 12}));
  const BlockShape block = config.block();
  const auto expect = [&](int p, int64_t in, int64_t out) {
    EXPECT_EQ(block.slice(p).dims.in, in) << p;
    EXPECT_EQ(block.slice(p).dims.out, out) << p;
  };
  expect(llama::kQ, 48, 120);
  expect(llama::kK, 48, 40);
  expect(llama::kV, 48, 40);
  expect(llama::kO, 120, 48);
  expect(llama::kGate, 48, 56);
  expect(llama::kUp, 48, 56);
  expect(llama::kDown, 56, 48);
}

TEST(DecoderConfig, RefusesWhatItCannotRun) {
  using testing::expect_unsupported;
  expect_unsupported(
      {"m.gguf: general.architecture is gpt2, supported: gemma2, gemma3, granite, llama"}, [] {
        with({{"general.architecture", "gpt2"}});
      });
  expect_unsupported({"m.gguf: llama.expert_count is 8"}, [] {
    with({{"llama.expert_count", 8u}});
  });
  expect_unsupported({"m.gguf: llama.rope.scaling.type is su, supported: none, linear, yarn"}, [] {
    with({{"llama.rope.scaling.type", "su"}});
  });
}

TEST(DecoderConfig, RefusesWhatContradictsItself) {
  struct Wrong {
    const char* key;
    Value value;
    const char* says;
  };
  const std::initializer_list<Wrong> cases = {
      {"llama.attention.head_count_kv", 4u, "head_count is 6, expected a multiple of"},
      {"llama.attention.key_length", 7u, "heads have 7 elements, expected an even number"},
      {"llama.attention.key_length", 258u, "heads have 258 elements"},
      {"llama.attention.value_length", 10u, "value_length is 10, expected the key's length 8"},
      {"llama.rope.dimension_count", 5u, "dimension_count is 5, expected an even number up to 8"},
      {"llama.rope.dimension_count", 10u, "dimension_count is 10, expected an even number up to 8"},
      {"llama.rope.freq_base", 0.0f, "freq_base is 0, expected a positive number"},
      {"llama.rope.freq_base", -1.0f, "freq_base is -1"},
      {"llama.attention.layer_norm_rms_epsilon", -0.5f, "epsilon is -0.5, expected a number of"},
      {"llama.block_count", 0u, "block_count is 0, expected 1 to"},
      {"llama.context_length", 0u, "context_length is 0, expected 1 to"},
      {"llama.embedding_length", 0x80000000u, "embedding_length is 2147483648, expected 1 to"}};
  for (const Wrong& wrong : cases) {
    testing::expect_invalid({"m.gguf: ", wrong.says}, [&] { with({{wrong.key, wrong.value}}); });
  }
  testing::expect_invalid({"m.gguf: llama.rope.scaling.factor is 0"}, [] {
    with({{"llama.rope.scaling.type", "linear"}, {"llama.rope.scaling.factor", 0.0f}});
  });
  for (const auto& [key, value] : least()) {
    Values values = least();
    values.erase(key);
    EXPECT_NE(testing::message_of([&] { config_of(values); }).find(key), std::string::npos) << key;
  }
}

}  // namespace
}  // namespace heddle::model
