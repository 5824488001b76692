#pragma once

#include <string>
#include <vector>

#include "heddle/core/context.h"

#include "core/device_bytes.h"
#include "core/device_tensor.h"
#include "model/config/decoder_config.h"
#include "model/eagle3/eagle3_config.h"
#include "model/weights/matrix.h"

namespace heddle::model {

/// An EAGLE-3 drafter in memory of one device. Norms are [hidden_size] f32.
struct Eagle3Weights {
  DType activations = DType::kFloat32;  // what its products read, that of the target
  Matrix fuse;                          // "fc", [hidden_size, 3 * the target's hidden_size]
  Matrix q, k, v;  // of the normalised embedding and hidden state, side by side
  Matrix o, gate, up, down;
  Matrix head;       // [draft_vocab_size, hidden_size]
  Matrix embedding;  // [vocab_size, hidden_size]; absent: the target's
  bool has_embedding = false;
  DeviceTensor embedding_norm, hidden_norm, mlp_norm, output_norm;
  DeviceTensor target_ids;            // [draft_vocab_size] i32: the target's token of each
  std::vector<DeviceBytes> buffers;   // what the matrices point into
  std::vector<DeviceTensor> rounded;  // on a GPU: those that the file has in another dtype
};

/// Loads model.safetensors of the folder to the context's device. Throws Error, one sentence that
/// names file and tensor, for a tensor that is missing, has another shape or dtype, or no place.
[[nodiscard]] Eagle3Weights load_eagle3_weights(const ExecContext& ctx, const std::string& folder,
                                                const Eagle3Config& config,
                                                const DecoderConfig& target, DType activations);

}  // namespace heddle::model
