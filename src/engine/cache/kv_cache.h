#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heddle/ops/kv_cache.h"

#include "core/device_tensor.h"
#include "engine/cache/page_pool.h"
#include "model/decoder/layer_cache.h"

namespace heddle {

/// The memory of a paged KV cache for all layers on one device. On the CPU address space is
/// reserved at once, and the system commits memory when a page is first written.
///
/// A page is contiguous, [num_layers, 2, num_kv_heads, page_size, head_dim], so that a sequence
/// of one page touches one page's memory. In f8e4m3 the scales of its tokens follow, in the same
/// page: see PagedKv::from_pointers.
class KvCache {
 public:
  struct Shape {
    int num_layers, num_kv_heads, page_size, head_dim;
    DType dtype = DType::kFloat32;
    [[nodiscard]] int64_t page_bytes() const;
  };

  KvCache(Device device, const Shape& shape, int64_t num_pages);

  /// A page, in memory of the device.
  [[nodiscard]] std::span<std::byte> bytes_of(PageId page) const;

  /// Of each layer.
  [[nodiscard]] std::span<const model::LayerCache> layers() const { return layers_; }

 private:
  [[nodiscard]] PagedKv layer(const Shape& shape, int layer_idx) const;

  DeviceTensor pages_;  // [num_pages, page_bytes] u8
  std::vector<model::LayerCache> layers_;
};

/// The type of a cache's elements: "f32", "f16", "bf16", "fp8". Throws Error for other names.
[[nodiscard]] DType kv_type_of(const std::string& name);
/// Its name back: that of the dtype, "fp8" for f8e4m3.
[[nodiscard]] const char* kv_type_name(DType dtype);

/// Pages of a cache of at most `kv_memory` bytes, and no more than `max_pages`. Throws Error where
/// the bytes do not hold a single page. kv_memory 0: half of the `available` bytes, and at least
/// one page.
[[nodiscard]] int64_t choose_num_pages(int64_t kv_memory, int64_t available,
                                       const KvCache::Shape& shape, int64_t max_pages);

}  // namespace heddle
