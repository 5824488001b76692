// What a decoder keeps of the hidden states that enter its layers, against their definition in
// double, for every form of residual that families have.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/decoder/decoder.h"
#include "model/test/random_decoder.h"

namespace heddle::model {
namespace {

constexpr int64_t kHidden = 24, kTokens = 6;
constexpr int64_t kTapped[] = {0, 1, 3};

DecoderConfig plain() {
  return llama::rotating({.num_layers = 4,
                          .hidden_size = kHidden,
                          .intermediate_size = 40,
                          .num_q_heads = 4,
                          .num_kv_heads = 2,
                          .head_dim = 8,
                          .vocab_size = 37,
                          .context_length = 32});
}

/// [kTokens, 3 * kHidden] of a step with all tokens, which wants logits of the last or of none.
std::vector<float> tapped(RandomDecoder& both, const std::vector<int32_t>& tokens, bool draws) {
  const DecoderConfig config = both.ref.config;
  const RandomCache cache(both.ctx.device, config, 1, 2);
  const Decoder model(config, std::move(both.weights));
  const StepLimits limits{.num_tokens = 8, .num_seqs = 1, .num_pages = 8, .num_logit_rows = 1};
  DecoderScratch scratch(both.ctx.device, config, limits, DType::kFloat32);
  scratch.tap(both.ctx.device, kTapped);
  std::vector<std::byte> buffer(model.workspace_bytes(both.ctx.device, limits, 0));
  Workspace workspace(buffer);
  both.ctx.workspace = &workspace;
  const LoadedAdapters adapters{
      .layers = {config.dims(), LoraForm::of(both.ctx.device.type, DType::kFloat32)},
      .vocabularies = {}};
  StepBatch batch;
  batch.q_indptr = {0, static_cast<int32_t>(kTokens)};
  for (int32_t i = 0; i < kTokens; ++i) {
    batch.token_ids.push_back(tokens[static_cast<size_t>(i)]);
    batch.positions.push_back(i);
    batch.slot_ids.push_back(kNoAdapter);
  }
  if (draws) batch.logit_tokens = {kTokens - 1};
  batch.page_indptr = {0};
  cache.add_sequence(batch, 0, kTokens);
  const DeviceTensor logits(both.ctx.device, DType::kFloat32, {1, config.vocab_size});
  double lora_seconds = 0;
  model.forward(both.ctx, batch, scratch, cache.layers(), adapters, logits.view(), &lora_seconds);
  std::vector<float> host(static_cast<size_t>(kTokens * 3 * kHidden), NAN);
  copy_to_host(both.ctx, std::span(host), scratch.tapped(kTokens));
  return host;
}

TEST(TappedLayers, AreWhatEntersThem) {
  const std::pair<const char*, std::function<void(DecoderConfig&)>> traits[] = {
      {"plain", [](DecoderConfig& /*c*/) {}},
      {"norms after, too", [](DecoderConfig& c) { c.norm_after = true; }},
      {"norms after alone", [](DecoderConfig& c) { c.norm_before = false, c.norm_after = true; }},
      {"norms of each head", [](DecoderConfig& c) { c.qk_norm = QkNorm::kEachHead; }},
      {"scales", [](DecoderConfig& c) { c.embedding_scale = 3.0f, c.residual_scale = 0.25f; }}};
  for (const auto& [name, set] : traits) {
    for (const bool draws : {false, true}) {
      DecoderConfig config = plain();
      set(config);
      RandomDecoder both(config);
      std::vector<int32_t> tokens;
      for (int64_t t = 0; t < kTokens; ++t) {
        tokens.push_back(static_cast<int32_t>(testing::random_int(0, config.vocab_size - 1)));
      }
      const std::vector<float> got = tapped(both, tokens, draws);
      for (size_t tap = 0; tap < std::size(kTapped); ++tap) {
        ref::Llama entering = both.ref;
        entering.layers.resize(static_cast<size_t>(kTapped[tap]));
        const std::vector<ref::Values> want = ref::hidden_states(entering, tokens);
        for (size_t t = 0; t < want.size(); ++t) {
          double largest = 0, error = 0;
          for (size_t i = 0; i < want[t].size(); ++i) {
            const double value = got[(t * 3 + tap) * size_t{kHidden} + i];
            largest = std::max(largest, std::abs(want[t][i]));
            error = std::max(error, std::abs(value - want[t][i]));
          }
          EXPECT_LE(error, 2e-4 * largest) << name << ", layer " << kTapped[tap] << ", token " << t;
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::model
