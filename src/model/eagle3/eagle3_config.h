#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "heddle/ops/rope.h"

#include "model/config/decoder_config.h"

namespace heddle::model {

/// Layers of the target whose inputs an EAGLE-3 drafter reads.
inline constexpr int kEagle3Layers = 3;

/// The shape of an EAGLE-3 drafter: one layer of a Llama after those of the target, and a head.
struct Eagle3Config {
  int64_t hidden_size = 0, intermediate_size = 0;
  int64_t num_q_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t vocab_size = 0, draft_vocab_size = 0;  // the target's tokens, and those that it drafts
  float rms_epsilon = 1e-6f;
  bool norm_before_residual = false;  // what attention is added to is the normalised hidden state
  RopeParams rope{};
  std::array<int64_t, kEagle3Layers> layers{};  // ascending; it reads what enters them
  std::vector<std::string> unread{};            // settings that nothing reads

  [[nodiscard]] int64_t q_size() const { return num_q_heads * head_dim; }
  [[nodiscard]] int64_t kv_size() const { return num_kv_heads * head_dim; }
};

/// Reads config.json of a folder as vLLM and SGLang take it, of a drafter for this target. Throws
/// Error, one sentence that names file, key and value, for everything that does not fit.
[[nodiscard]] Eagle3Config read_eagle3_config(const std::string& folder,
                                              const DecoderConfig& target);

}  // namespace heddle::model
