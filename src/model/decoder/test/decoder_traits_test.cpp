// Every trait in which families differ, against its definition in double: a small model whose
// sequence is run as a prompt in two pieces and then token by token.
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/decoder/decoder.h"
#include "model/test/random_decoder.h"

namespace heddle::model {
namespace {

using Values = std::vector<double>;

constexpr int kTokens = 11;

/// Of the error relative to the largest logit. Random weights now and then make a softmax so steep
/// that it multiplies the rounding of its scores: of 1,500 seeds 96 % stay below 1e-5, 3 go beyond
/// 3e-5, and the largest error is 5.9e-5. A trait that is wrong or missing changes more than 1e-3.
constexpr double kBound = 2e-4;

DecoderConfig plain() {
  return llama::rotating({.num_layers = 3,
                          .hidden_size = 24,
                          .intermediate_size = 40,
                          .num_q_heads = 4,
                          .num_kv_heads = 2,
                          .head_dim = 8,
                          .vocab_size = 37,
                          .context_length = 32});
}

/// The logits after each of the tokens.
std::vector<Values> reference(const ref::Llama& m, const std::vector<int32_t>& tokens) {
  std::vector<Values> logits;
  for (const Values& state : ref::hidden_states(m, tokens)) {
    logits.push_back(ref::logits_of(m, state));
  }
  return logits;
}

/// The logits of the decoder: four tokens, then three, then one by one, in pages of two.
std::vector<std::vector<float>> computed(RandomDecoder& both, const std::vector<int32_t>& tokens) {
  const DecoderConfig config = both.ref.config;
  const RandomCache cache(both.ctx.device, config, 1, 2);
  const Decoder model(config, std::move(both.weights));
  const StepLimits limits{
      .num_tokens = 8, .num_seqs = 1, .num_pages = kTokens, .num_logit_rows = 8};
  DecoderScratch scratch(both.ctx.device, config, limits, DType::kFloat32);
  std::vector<std::byte> buffer(model.workspace_bytes(both.ctx.device, limits, 0));
  Workspace workspace(buffer);
  both.ctx.workspace = &workspace;
  const LoadedAdapters adapters{
      .layers = {config.dims(), LoraForm::of(both.ctx.device.type, DType::kFloat32)},
      .vocabularies = {}};
  std::vector<std::vector<float>> all;
  for (int64_t done = 0; done < std::ssize(tokens);) {
    const int64_t count = done == 0 ? 4 : (done == 4 ? 3 : 1);
    StepBatch batch;
    batch.q_indptr = {0, static_cast<int32_t>(count)};
    for (int64_t i = 0; i < count; ++i) {
      batch.token_ids.push_back(tokens[static_cast<size_t>(done + i)]);
      batch.positions.push_back(static_cast<int32_t>(done + i));
      batch.slot_ids.push_back(kNoAdapter);
      batch.logit_tokens.push_back(static_cast<int32_t>(i));
    }
    done += count;
    batch.page_indptr = {0};
    cache.add_sequence(batch, 0, done);
    const DeviceTensor logits(both.ctx.device, DType::kFloat32, {count, config.vocab_size});
    double lora_seconds = 0;
    model.forward(both.ctx, batch, scratch, cache.layers(), adapters, logits.view(), &lora_seconds);
    std::vector<float> host(static_cast<size_t>(count * config.vocab_size), NAN);
    copy_to_host(both.ctx, std::span(host), logits.view());
    for (int64_t i = 0; i < count; ++i) {
      const auto begin = host.begin() + i * config.vocab_size;
      all.emplace_back(begin, begin + config.vocab_size);
    }
  }
  return all;
}

struct Trait {
  const char* name;
  std::function<void(DecoderConfig&)> set;
};

/// Windows of 4 and 5 keys: shorter than the first piece of the prompt is one, longer the other.
void windows(DecoderConfig& c) {
  c.layers.resize(3);
  c.layers[0].window = 3;
  c.layers[2].window = 5;
}

const Trait kTraits[] = {
    {"epsilon", [](DecoderConfig& c) { c.rms_epsilon = 0.25f; }},
    {"norms after, too", [](DecoderConfig& c) { c.norm_after = true; }},
    {"norms after alone", [](DecoderConfig& c) { c.norm_before = false, c.norm_after = true; }},
    {"norms add one", [](DecoderConfig& c) { c.norm_adds_one = true; }},
    {"norms of each head", [](DecoderConfig& c) { c.qk_norm = QkNorm::kEachHead; }},
    {"norms of all heads", [](DecoderConfig& c) { c.qk_norm = QkNorm::kAllHeads; }},
    {"norms of heads that add one",
     [](DecoderConfig& c) { c.qk_norm = QkNorm::kEachHead, c.norm_adds_one = true; }},
    {"biases of q, k and v", [](DecoderConfig& c) { c.qkv_bias = true; }},
    {"bias of o", [](DecoderConfig& c) { c.o_bias = true; }},
    {"biases of the MLP", [](DecoderConfig& c) { c.mlp_bias = true; }},
    {"gelu by tanh", [](DecoderConfig& c) { c.gate_activation = GateActivation::kGeluTanh; }},
    {"gelu by erf", [](DecoderConfig& c) { c.gate_activation = GateActivation::kGeluErf; }},
    {"scale of the embedding", [](DecoderConfig& c) { c.embedding_scale = 3.0f; }},
    {"scale of the residual", [](DecoderConfig& c) { c.residual_scale = 0.25f; }},
    {"scale of scores", [](DecoderConfig& c) { c.attention_scale = 0.7f; }},
    {"scale of logits", [](DecoderConfig& c) { c.logits_scale = 0.125f; }},
    {"cap of scores", [](DecoderConfig& c) { c.attention_soft_cap = 0.5f; }},
    {"cap of logits", [](DecoderConfig& c) { c.logits_soft_cap = 2.0f; }},
    {"scale and cap of logits",
     [](DecoderConfig& c) { c.logits_scale = 0.5f, c.logits_soft_cap = 2.0f; }},
    {"windows", windows},
    {"a window of one key",
     [](DecoderConfig& c) {
       c.layers.resize(3);
       c.layers[1].window = 1;
     }},
    {"layers without rotation",
     [](DecoderConfig& c) {
       c.layers.resize(3);
       c.layers[1].rotation = LayerTraits::kNoRotation;
     }},
    {"a rotation for some layers",
     [](DecoderConfig& c) {
       c.rotations.push_back(c.rotations[0]);
       c.rotations[1].params.theta = 100.0;
       c.rotations[1].params.scale = 2.0;
       c.layers.resize(3);
       c.layers[2].rotation = 1;
     }},
    {"part of a head turns", [](DecoderConfig& c) { c.rotations[0].params.rotary_dim = 4; }},
};

TEST(DecoderTraits, EachIsItsDefinition) {
  const uint64_t seed = testing::rng()();
  std::vector<int32_t> tokens;
  for (int i = 0; i < kTokens; ++i) {
    tokens.push_back(static_cast<int32_t>(testing::random_int(0, plain().vocab_size - 1)));
  }
  const auto logits_of = [&](const DecoderConfig& config) {
    testing::rng().seed(seed);
    return reference(RandomDecoder(config).ref, tokens);
  };
  const std::vector<Values> without = logits_of(plain());
  for (const Trait& trait : kTraits) {
    DecoderConfig config = plain();
    trait.set(config);
    const std::vector<Values> want = logits_of(config);
    testing::rng().seed(seed);
    RandomDecoder both(config);
    const std::vector<std::vector<float>> got = computed(both, tokens);
    ASSERT_EQ(got.size(), want.size());
    for (size_t t = 0; t < want.size(); ++t) {
      EXPECT_LT(testing::relative_error<float>(got[t], want[t]), kBound)
          << trait.name << ", token " << t;
    }
    // The last token sees all of them: a trait that changed nothing would not be tested.
    const std::vector<float> last(without.back().begin(), without.back().end());
    EXPECT_GT(testing::relative_error<float>(last, want.back()), 1e-3) << trait.name;
  }
}

}  // namespace
}  // namespace heddle::model
