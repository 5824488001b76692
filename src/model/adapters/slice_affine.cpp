#include "model/adapters/slice_affine.h"

#include <algorithm>

#include "model/adapters/adapted_rows.h"
#include "model/weights/decoder_weights.h"
#include "model/weights/device_values.h"

namespace heddle::model {
namespace {

bool has_affine(const LowRank& pair) {
  return std::ranges::any_of(pair.vectors(), &StoredValues::is_present);
}

/// part: has_affine. bias: the layer's own, or absent.
std::vector<float> affine_values(const ExecContext& ctx, const LowRank& part, const Matrix& weight,
                                 const ConstTensorView& bias) {
  if (part.factor.is_present()) return part.factor.floats();  // which comes alone
  const auto size = static_cast<size_t>(part.out_features);
  std::vector<float> values(size, 1.0f), offset;
  if (part.magnitude.is_present()) values = dora_factors(ctx, weight, part);
  const bool has_bias = bias.raw() != nullptr;
  if (part.layer_bias.is_present()) {
    offset = part.layer_bias.floats();
    const std::vector<float> replaced =
        has_bias ? host_floats(ctx, bias) : std::vector<float>(size);
    for (size_t i = 0; i < size; ++i) offset[i] -= values[i] * replaced[i];
  } else if (part.magnitude.is_present() && has_bias) {
    offset = host_floats(ctx, bias);
    for (size_t i = 0; i < size; ++i) offset[i] *= 1.0f - values[i];
  }
  if (part.bias.is_present()) {
    const std::vector<float> own = part.bias.floats();
    offset.resize(size);
    for (size_t i = 0; i < size; ++i) offset[i] += part.scale * own[i];
  }
  values.insert(values.end(), offset.begin(), offset.end());
  return values;
}

}  // namespace

LowRank rows_of(const LowRank& pair, int64_t first, int64_t count) {
  const auto part_of = [&](StoredValues vector) {
    if (!vector.is_present()) return vector;
    vector.data += first * int64_t(size_of(vector.dtype));
    vector.columns = count;
    return vector;
  };
  LowRank part = pair;
  part.out_features = count;
  part.b = pair.stored_b().narrow(first, count).data;
  part.magnitude = part_of(pair.magnitude);
  part.bias = part_of(pair.bias);
  part.layer_bias = part_of(pair.layer_bias);
  part.factor = part_of(pair.factor);
  return part;
}

std::vector<SliceAffine> slice_affines(const ExecContext& ctx, const Adapter& adapter,
                                       const BlockShape& block, const DecoderWeights& weights) {
  std::vector<SliceAffine> affines;
  for (const AdapterPair& pair : adapter.pairs()) {
    if (!has_affine(pair)) continue;
    const DecoderLayer& layer = weights.layers[static_cast<size_t>(pair.layer)];
    int64_t first = 0;
    const auto slices = block.find(*pair.module);
    for (int i = slices.first; i < slices.first + slices.count; ++i) {
      const int64_t out = block.slice(i).dims.out;
      const SliceWeights& base = layer.slices[static_cast<size_t>(i)];
      affines.push_back(
          {.layer = pair.layer,
           .slice = i,
           .values = affine_values(ctx, rows_of(pair, first, out), base.matrix, base.bias.view())});
      first += out;
    }
  }
  return affines;
}

int64_t affine_bytes(const Adapter& adapter) {
  int64_t bytes = 0;
  for (const AdapterPair& pair : adapter.pairs()) {
    if (has_affine(pair)) bytes += 2 * pair.out_features * int64_t{sizeof(float)};
  }
  return bytes;
}

}  // namespace heddle::model
