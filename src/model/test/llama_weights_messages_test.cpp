#include <deque>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "gguf_builder.h"
#include "model/source/gguf_model.h"
#include "model/weights/decoder_weights.h"
#include "readers/clean_message.h"

namespace heddle::model {
namespace {

using testing::GgufBuilder;

DecoderConfig small_config() {
  DecoderConfig config;
  config.num_layers = config.num_q_heads = config.num_kv_heads = 1;
  config.hidden_size = config.head_dim = 2;
  config.intermediate_size = 4;
  config.vocab_size = 3;
  config.rotations[0].params.rotary_dim = 2;
  config.interleaved_qk = config.tied_head = true;
  return config;
}

/// All tensors of small_config.
GgufBuilder whole_file() {
  GgufBuilder builder;
  const auto add = [&](const std::string& name, const std::vector<uint64_t>& dims) {
    uint64_t bytes = 4;
    for (const uint64_t extent : dims) bytes *= extent;
    builder.tensor(name, dims, 0, std::string(bytes, '\0'));
  };
  add("token_embd.weight", {2, 3});
  add("output_norm.weight", {2});
  for (const char* norm : {"attn_norm", "ffn_norm"}) {
    add(std::string("blk.0.") + norm + ".weight", {2});
  }
  for (const char* square : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
    add(std::string("blk.0.") + square + ".weight", {2, 2});
  }
  add("blk.0.ffn_gate.weight", {2, 4});
  add("blk.0.ffn_up.weight", {2, 4});
  add("blk.0.ffn_down.weight", {4, 2});
  return builder;
}

void load(const GgufBuilder& builder, const DecoderConfig& config = small_config()) {
  const std::string bytes = builder.build();
  std::deque<files::GgufFile> file;
  file.emplace_back(std::as_bytes(std::span(bytes)), "m.gguf");
  (void)load_weights(ExecContext{}, GgufWeights(file), config, gguf_tensor_names(config));
}

TEST(LlamaWeightsMessages, TakeTheWholeFile) { EXPECT_NO_THROW(load(whole_file())); }

TEST(LlamaWeightsMessages, QuotesLittleOfTheFile) {
  GgufBuilder more = whole_file();
  more.tensor(testing::hostile_text(size_t{10} << 20), {2}, 0, std::string(8, '\0'));
  testing::expect_clean_message("a tensor without a place", [&] { load(more); });
}

}  // namespace
}  // namespace heddle::model
