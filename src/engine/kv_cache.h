#pragma once

#include <cstdint>

#include "heddle/ops/kv_cache.h"

#include "core/device_tensor.h"

namespace heddle {

/// The memory of a paged KV cache for all layers, in f32, on one device. On the CPU address space
/// is reserved at once, memory is taken by the system when a page is first written.
///
/// A page lies in one piece, [num_layers, 2, num_kv_heads, page_size, head_dim], so that a sequence
/// of one page touches one page's memory.
class KvCache {
 public:
  struct Shape {
    int64_t num_pages;
    int num_layers, num_kv_heads, page_size, head_dim;
  };

  KvCache(Device device, const Shape& shape);

  [[nodiscard]] PagedKv layer(int layer_idx) const;
  [[nodiscard]] const Shape& shape() const { return shape_; }

 private:
  Shape shape_;
  DeviceTensor pages_;
};

}  // namespace heddle
