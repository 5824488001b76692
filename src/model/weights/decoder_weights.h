#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "heddle/core/context.h"

#include "core/device_tensor.h"
#include "model/config/decoder_config.h"
#include "model/config/tensor_names.h"
#include "model/config/weight_source.h"
#include "model/weights/matrix.h"
#include "model/weights/row_quantizer.h"

namespace heddle::model {

// The weights of one layer. Norms are f32, biases of the products' output dtype; those that the
// family lacks are absent.

/// Of one slice of a block.
struct SliceWeights {
  Matrix matrix;      // rows in Hugging Face's order
  DeviceTensor bias;  // [out]
};

/// The norms of a mixer or an MLP: of its input, and of its output before it is added.
struct PartNorms {
  DeviceTensor norm, post_norm;  // [hidden_size]
};

struct AttentionWeights : PartNorms {
  DeviceTensor q_norm, k_norm;  // [head_dim], or of all heads
};

struct DecoderLayer {
  AttentionWeights mixer;
  PartNorms mlp;
  std::vector<SliceWeights> slices;  // by BlockShape::slices
};

/// [rotary_dim / 2] f32: the frequencies of a Rotation are divided by them; absent: none.
struct RotationFactors {
  DeviceTensor factors, long_factors;
};

/// The weights of a decoder in memory of one device, as its products read them.
struct DecoderWeights {
  /// What products read and write: f32 on the CPU. On a GPU f16 where the model's matrices are
  /// stored in f16 or requested in f16, else bf16; all dense matrices are of it.
  DType activations = DType::kFloat32;
  LinearActivations product_activations = LinearActivations::kFloat32;  // of matrices on the CPU
  int64_t num_int8 = 0, num_matrices = 0;  // of all, those that take int8, where others may not
  Matrix embedding;                        // [vocab_size, hidden_size]
  Matrix output;             // [vocab_size, hidden_size]; the embedding itself with a tied head
  DeviceTensor output_norm;  // [hidden_size] f32
  std::vector<RotationFactors> rotation_factors;  // by DecoderConfig::rotations; may be empty
  std::vector<DecoderLayer> layers;
  std::vector<DeviceBytes> buffers;  // what the matrices point into
  size_t num_bytes = 0;              // of the buffers
  Quantization quantization;         // where LoadOptions named a type
  int64_t read_bytes = 0;            // of the matrices in the files
  double load_seconds = 0;           // until all of them were in their places
};

struct LoadOptions {
  /// Matrices of dense types are packed in this one, all that RowQuantizer takes: slices of blocks,
  /// embedding and head. Norms and biases are f32 always.
  std::optional<WeightType> weights{};
  /// What products with the matrices take; on the CPU. Refused where no matrix would do so.
  LinearActivations product_activations = LinearActivations::kFloat32;
  /// Called from the loading thread after each piece: bytes of the tensors so far, and of all.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> on_load{};
};

/// Loads every weight of the model to the context's device, piece by piece, so that the peak is
/// little above the packed size. On a GPU dense
/// matrices of another type than the activations' are rounded to that. Rows of q and
/// k, which some files keep permuted for interleaved rotation, come back into Hugging Face's order.
/// Errors name file, tensor and both values; a tensor that the model has no place for is refused.
[[nodiscard]] DecoderWeights load_weights(const ExecContext& ctx, const WeightSource& source,
                                          const DecoderConfig& config, const TensorNames& names,
                                          const LoadOptions& options = {});

}  // namespace heddle::model
