#pragma once

#include "model/adapters/adapter_vocabulary.h"
#include "model/decoder/decoder_step.h"

namespace heddle::model {

/// The residual of a step: the embedding of its tokens, as the adapter of each sequence changes it.
void embed(const DecoderStep& step, const StepBatch& batch, const AdapterVocabularies& own);
/// logits [num_rows, the widest vocabulary] of `last` [num_rows, hidden_size], the rows of
/// batch.logit_tokens, as the adapter of each changes them.
void head(const DecoderStep& step, const StepBatch& batch, const AdapterVocabularies& own,
          const TensorView& last, const TensorView& logits);

}  // namespace heddle::model
