#pragma once

#include "model/decoder/decoder_step.h"

namespace heddle::model {

// The two halves of a layer, by kind. Each reads x [num_tokens, hidden_size] and leaves in
// step.delta what is added to the residual. A kind is an alternative of BlockShape::mixer or mlp
// and one overload here.

/// Attention over the cached keys and values, which include those of this step.
void mix(const DecoderStep& step, int layer, const AttentionSites& sites, const TensorView& x);
/// down(activation(gate(x)) * up(x)).
void mlp(const DecoderStep& step, int layer, const GatedMlpSites& sites, const TensorView& x);

/// Before the first layer: cos and sin of each rotation for the step's tokens. Where angles depend
/// on the length of the sequence, a table for each sequence.
void rotation_tables(const DecoderStep& step, const StepBatch& batch);

}  // namespace heddle::model
