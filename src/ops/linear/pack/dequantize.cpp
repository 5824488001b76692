#include "heddle/core/error.h"
#include "heddle/core/product.h"
#include "heddle/ops/linear.h"

#include "ops/linear/format/stored_block.h"

namespace heddle {

const char* name(WeightType type) { return block_format(type).name; }

int block_size(WeightType type) { return block_format(type).block_size; }

size_t stored_bytes(WeightType type, int64_t num_weights) {
  const BlockFormat format = block_format(type);
  HEDDLE_CHECK(num_weights >= 0 && num_weights % format.block_size == 0, num_weights,
               " weights of type ", type, " are not a multiple of its block of ",
               format.block_size);
  return static_cast<size_t>(checked_product(
      "stored bytes", {num_weights / format.block_size, int64_t{format.stored_bytes}}));
}

void dequantize(std::span<float> out, WeightType type, std::span<const std::byte> stored) {
  const size_t expected = stored_bytes(type, static_cast<int64_t>(out.size()));
  HEDDLE_CHECK(stored.size() == expected, "dequantize: stored holds ", stored.size(),
               " bytes, expected ", expected, " for ", out.size(), " weights of type ", type);
  const BlockFormat format = block_format(type);
  const std::byte* p = stored.data();
  for (size_t i = 0; i < out.size(); i += size_t(format.block_size), p += format.stored_bytes) {
    if (is_dense(type)) {
      out[i] = dense_value(type, p);
    } else {
      Block block;
      read_stored_block(type, p, block);
      block_values(type, block, &out[i]);
    }
  }
}

}  // namespace heddle
