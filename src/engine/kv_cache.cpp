#include "engine/kv_cache.h"

#include <array>

namespace heddle {

KvCache::KvCache(Device device, const Shape& shape)
    : shape_(shape),
      pages_(device, DType::kFloat32,
             {shape.num_pages, shape.num_layers, 2, shape.num_kv_heads, shape.page_size,
              shape.head_dim}) {}

PagedKv KvCache::layer(int layer_idx) const {
  const TensorView pages = pages_.view();
  // K or V of a layer: [num_pages, num_kv_heads, page_size, head_dim].
  const auto half = [&](int64_t kv) {
    const TensorView part = pages.narrow(1, layer_idx, 1).narrow(2, kv, 1);
    const std::array<int64_t, 4> shape{part.size(0), part.size(3), part.size(4), part.size(5)};
    const std::array<int64_t, 4> strides{part.stride(0), part.stride(3), part.stride(4),
                                         part.stride(5)};
    return TensorView(part.raw(), part.dtype(), part.device(), shape, strides);
  };
  return PagedKv::from_pool(half(0), half(1));
}

}  // namespace heddle
