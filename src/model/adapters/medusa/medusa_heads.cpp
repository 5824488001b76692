#include "model/adapters/medusa/medusa_heads.h"

#include <span>
#include <utility>
#include <vector>

#include "model/weights/device_values.h"

namespace heddle::model {

MedusaHeads::MedusaHeads(const ExecContext& ctx, const MedusaFiles& files, DType activations) {
  for (const MedusaFiles::Head& stored : files.heads()) {
    Head& head = heads_.emplace_back();
    for (const auto& [weight, bias] : stored.layers) {
      head.layers.push_back({own_matrix(ctx, weight, activations),
                             tensor_of(ctx, bias.floats(), {bias.columns}, activations)});
    }
    if (stored.output.is_present()) head.output = own_matrix(ctx, stored.output, activations);
  }
}

MedusaHeads::MedusaHeads(const ExecContext& ctx, int64_t num_heads, int64_t hidden_size,
                         DType activations) {
  const std::vector<bfloat16> zeros(static_cast<size_t>(hidden_size * hidden_size));
  const StoredValues weight{.dtype = DType::kBFloat16,
                            .rows = hidden_size,
                            .columns = hidden_size,
                            .data = std::as_bytes(std::span(zeros)).data()};
  for (int64_t i = 0; i < num_heads; ++i) {
    Layer layer{own_matrix(ctx, weight, activations),
                DeviceTensor(ctx.device, activations, {hidden_size})};
    heads_.emplace_back().layers.push_back(std::move(layer));
  }
}

int64_t medusa_bytes(const MedusaFiles& files, std::optional<DType> rounded_to) {
  const auto of_bias = static_cast<int64_t>(size_of(rounded_to.value_or(DType::kFloat32)));
  int64_t bytes = 0;
  for (const MedusaFiles::Head& head : files.heads()) {
    for (const auto& [weight, bias] : head.layers) {
      bytes += own_matrix_bytes(weight, rounded_to) + of_bias * bias.columns;
    }
    if (head.output.is_present()) bytes += own_matrix_bytes(head.output, rounded_to);
  }
  return bytes;
}

}  // namespace heddle::model
