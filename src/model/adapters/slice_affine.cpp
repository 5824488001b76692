#include "model/adapters/slice_affine.h"

#include <algorithm>

#include "heddle/core/check.h"

#include "model/adapters/adapted_rows.h"
#include "model/decoder/decoder_weights.h"

namespace heddle::model {
namespace {

constexpr int64_t kElementsPerTask = 8192;

}  // namespace

std::vector<SliceAffine> slice_affines(const ExecContext& ctx, const Adapter& adapter,
                                       const ModelDims& dims, const DecoderWeights& weights) {
  std::vector<SliceAffine> affines;
  for (const AdapterPair& pair : adapter.pairs()) {
    if (!pair.magnitude.is_present() && !pair.bias.is_present()) continue;
    if (ctx.device.type != DeviceType::kCpu) {
      throw_error(ErrorCode::kUnsupported, adapter.path(),
                  ": DoRA and lora_bias run on the CPU alone (--device cpu)");
    }
    int64_t first = 0;
    for (int i = 0; i < pair.module->num_projections; ++i) {
      const auto p = static_cast<Projection>(static_cast<int>(pair.projection) + i);
      const int64_t count = dims[p].out;
      LowRank part = pair;  // the rows of this projection
      part.out_features = count;
      part.b = pair.stored_b().narrow(first, count).data;
      SliceAffine affine{.layer = pair.layer, .projection = p, .factor = {}, .offset = {}};
      if (pair.magnitude.is_present()) {
        const DecoderLayer& layer = weights.layers[static_cast<size_t>(pair.layer)];
        part.magnitude.data = pair.magnitude.data + first * int64_t(size_of(pair.magnitude.dtype));
        part.magnitude.columns = count;
        affine.factor = dora_factors(ctx, layer[p], part);
        const ConstTensorView bias = layer.bias_of(p);
        if (bias.raw() != nullptr) {
          for (size_t row = 0; row < affine.factor.size(); ++row) {
            affine.offset.push_back((1.0f - affine.factor[row]) * bias.data<float>()[row]);
          }
        }
      }
      if (pair.bias.is_present()) {
        const std::vector<float> values = pair.bias.floats();
        affine.offset.resize(static_cast<size_t>(count));
        for (int64_t row = 0; row < count; ++row) {
          affine.offset[size_t(row)] += pair.scale * values[size_t(first + row)];
        }
      }
      affines.push_back(std::move(affine));
      first += count;
    }
  }
  return affines;
}

int64_t affine_bytes(const Adapter& adapter) {
  int64_t bytes = 0;
  for (const AdapterPair& pair : adapter.pairs()) {
    const int64_t num_arrays =
        (pair.magnitude.is_present() ? 2 : 0) + (pair.bias.is_present() ? 1 : 0);
    bytes += std::min<int64_t>(num_arrays, 2) * pair.out_features * int64_t{sizeof(float)};
  }
  return bytes;
}

void apply_affines(const ExecContext& ctx, std::span<const LoraSlice> slices,
                   const LoraBatch& batch, const SiteAffines& affines) {
  const bool has_pairs = static_cast<bool>(batch.pair_starts);
  const auto* const slots = (has_pairs ? batch.pair_slots : batch.slot_ids).data<int32_t>();
  const auto* const starts = has_pairs ? batch.pair_starts.data<int32_t>() : nullptr;
  const auto* const scales = has_pairs ? batch.pair_scales.data<float>() : nullptr;
  for (size_t s = 0; s < slices.size(); ++s) {
    const TensorView& y = slices[s].y;
    const int64_t width = y.size(1);
    const int64_t grain = std::max<int64_t>(kElementsPerTask / width, 1);
    parallel_for(ctx, y.size(0), grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        float* const values = y.data<float>() + row * y.stride(0);
        const int64_t first = has_pairs ? starts[row] : row;
        const int64_t last = has_pairs ? starts[row + 1] : row + 1;
        for (int64_t pair = first; pair < last; ++pair) {
          if (slots[pair] < 0 || slots[pair] >= std::ssize(affines)) continue;
          const auto [factor, offset] = affines[static_cast<size_t>(slots[pair])][s];
          const float scale = has_pairs ? scales[pair] : 1.0f;
          for (int64_t i = 0; factor != nullptr && i < width; ++i) values[i] *= factor[i];
          for (int64_t i = 0; offset != nullptr && i < width; ++i) values[i] += scale * offset[i];
        }
      }
    });
  }
}

}  // namespace heddle::model
