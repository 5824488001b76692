#include "trait_mutations.h"

#include <algorithm>
#include <cmath>

namespace heddle::testing {
namespace {

using Gate = model::GateActivation;
using model::DecoderConfig;
using model::LayerTraits;
using model::QkNorm;

bool any_window(const DecoderConfig& c) {
  return std::ranges::any_of(c.layers, [](const LayerTraits& l) { return l.window > 0; });
}
void widen(DecoderConfig& c, int64_t by) {
  for (LayerTraits& layer : c.layers) {
    if (layer.window > 0) layer.window += by;
  }
}
bool any_without_rotation(const DecoderConfig& c) {
  return std::ranges::any_of(
      c.layers, [](const LayerTraits& l) { return l.rotation == LayerTraits::kNoRotation; });
}
RopeParams& rope(DecoderConfig& c) { return c.rotations.front().params; }
const RopeParams& rope(const DecoderConfig& c) { return c.rotations.front().params; }

/// A trait that is a flag, or a number or option away from its default.
template <class T>
TraitMutation of(const char* trait, T DecoderConfig::*member, T mutated) {
  const T usual = DecoderConfig{}.*member;
  return {trait, [=](const DecoderConfig& c) { return c.*member != usual; },
          [=](DecoderConfig& c) { c.*member = mutated; }};
}

TraitMutation gate(const char* trait, Gate activation, Gate mutated) {
  return {trait, [=](const DecoderConfig& c) { return c.gate_activation == activation; },
          [=](DecoderConfig& c) { c.gate_activation = mutated; }};
}

std::vector<TraitMutation> make() {
  using C = DecoderConfig;
  const auto always = [](const C&) { return true; };
  std::vector<TraitMutation> all = {
      {"rms_epsilon", always, [](C& c) { c.rms_epsilon *= 2; }},
      of("norm_before", &C::norm_before, true),
      of("norm_after", &C::norm_after, false),
      of("norm_adds_one", &C::norm_adds_one, false),
      {"qk_norm", [](const C& c) { return c.qk_norm != QkNorm::kNone; },
       [](C& c) { c.qk_norm = QkNorm::kNone; }},
      of("qkv_bias", &C::qkv_bias, false),
      of("o_bias", &C::o_bias, false),
      of("mlp_bias", &C::mlp_bias, false),
      of("fused_qkv", &C::fused_qkv, false),
      of("fused_gate_up", &C::fused_gate_up, false),
      of("interleaved_qk", &C::interleaved_qk, false),
      {"tied_head", [](const C& c) { return c.tied_head; }, [](C& c) { c.tied_head = false; }},
      {"own head", [](const C& c) { return !c.tied_head; }, [](C& c) { c.tied_head = true; }},
      gate("gate_activation: silu", Gate::kSilu, Gate::kGeluTanh),
      gate("gate_activation: gelu_pytorch_tanh", Gate::kGeluTanh, Gate::kSilu),
      gate("gate_activation: gelu", Gate::kGeluErf, Gate::kGeluTanh),
      of("embedding_scale", &C::embedding_scale, 1.0f),
      of("residual_scale", &C::residual_scale, 1.0f),
      of("logits_scale", &C::logits_scale, 1.0f),
      {"attention_scale",
       [](const C& c) {
         const float usual = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
         return std::abs(c.attention_scale.value_or(usual) / usual - 1) > 1e-3f;
       },
       [](C& c) { c.attention_scale.reset(); }},
      of("attention_soft_cap", &C::attention_soft_cap, 0.0f),
      of("logits_soft_cap", &C::logits_soft_cap, 0.0f),
      {"window", any_window, [](C& c) { widen(c, 1); }},
      {"window (one less)", any_window, [](C& c) { widen(c, -1); }},
      {"layers without rotation", any_without_rotation,
       [](C& c) {
         for (LayerTraits& layer : c.layers) layer.rotation = 0;
       }},
      {"a rotation for some layers", [](const C& c) { return c.rotations.size() > 1; },
       [](C& c) {
         for (LayerTraits& layer : c.layers) layer.rotation = std::min(layer.rotation, 0);
       }},
      {"rotation: theta", always, [](C& c) { rope(c).theta *= 1.1; }},
      {"rotation: scale", [](const C& c) { return rope(c).scale != 1.0; },
       [](C& c) { rope(c).scale = 1.0; }},
      {"rotation: rotary_dim", [](const C& c) { return rope(c).rotary_dim < c.head_dim; },
       [](C& c) {
         rope(c).rotary_dim = static_cast<int>(c.head_dim);
         c.rotations.front().factors.clear();
         c.rotations.front().long_factors.clear();
         c.rotations.front().has_long_factors = false;
       }},
      {"rotation: llama3", [](const C& c) { return rope(c).llama3.has_value(); },
       [](C& c) { rope(c).llama3.reset(); }},
      {"rotation: yarn", [](const C& c) { return rope(c).yarn.has_value(); },
       [](C& c) { rope(c).yarn.reset(); }},
      {"rotation: attention_factor", [](const C& c) { return rope(c).attention_factor != 1.0; },
       [](C& c) { rope(c).attention_factor = 1.0; }},
      {"rotation: dynamic", [](const C& c) { return c.rotations.front().ntk_factor > 0; },
       [](C& c) { c.rotations.front().ntk_factor = 0; }},
      {"rotation: factors", [](const C& c) { return !c.rotations.front().factors.empty(); },
       [](C& c) { c.rotations.front().factors.clear(); }},
      {"rotation: long_factors", [](const C& c) { return c.rotations.front().has_long_factors; },
       [](C& c) { c.rotations.front().has_long_factors = false; }}};
  return all;
}

}  // namespace

const std::vector<TraitMutation>& trait_mutations() {
  static const std::vector<TraitMutation> kAll = make();
  return kAll;
}

}  // namespace heddle::testing
