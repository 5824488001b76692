#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace heddle::ref {

/// What a request asks of one row of logits.
struct RowAdjustment {
  std::vector<int32_t> prompt, output;  // tokens
  std::vector<double> bias;             // [vocab_size]
  double repetition, presence, frequency;
};

/// The definition in double, over the whole vocabulary, with the tokens counted here: bias, then
/// repetition of prompt and answer as transformers' RepetitionPenaltyLogitsProcessor has it
/// (src/transformers/generation/logits_process.py), then frequency and presence of the answer as
/// vLLM's apply_penalties (vllm/model_executor/layers/utils.py).
inline std::vector<double> adjusted_logits(std::span<const float> logits,
                                           const RowAdjustment& row) {
  std::vector<double> result;
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto token = static_cast<int32_t>(i);
    const auto in_prompt = std::ranges::count(row.prompt, token);
    const auto in_output = std::ranges::count(row.output, token);
    double x = logits[i] + row.bias[i];
    if (in_prompt > 0 || in_output > 0) x = x < 0 ? x * row.repetition : x / row.repetition;
    x -= row.frequency * static_cast<double>(in_output);
    x -= row.presence * static_cast<double>(in_output > 0);
    result.push_back(x);
  }
  return result;
}

}  // namespace heddle::ref
