#include "heddle/ops/activation.h"

#include "model/decoder/mixers.h"

namespace heddle::model {
namespace {

void activate(const DecoderStep& s) {
  switch (s.config.gate_activation) {
    case GateActivation::kSilu: return silu_and_mul(s.ctx, s.gate, s.gate, s.up);
    case GateActivation::kGeluTanh:
      return gelu_and_mul(s.ctx, s.gate, s.gate, s.up, GeluForm::kTanh);
    case GateActivation::kGeluErf: return gelu_and_mul(s.ctx, s.gate, s.gate, s.up, GeluForm::kErf);
  }
}

}  // namespace

void mlp(const DecoderStep& s, int layer, const GatedMlpSites& sites, const TensorView& x) {
  s.run_site(layer, sites.gate_up, {s.gate, s.up}, x);
  activate(s);
  s.run_site(layer, sites.down, {s.delta}, s.gate);
  s.finish_delta(s.layer(layer).mlp.post_norm);
}

}  // namespace heddle::model
