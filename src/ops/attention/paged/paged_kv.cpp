#include "heddle/core/check.h"
#include "heddle/ops/kv_cache.h"

#include "core/math.h"
#include "ops/attention/paged/page_validate.h"

namespace heddle {
namespace {

constexpr int64_t kScaleAlignment = 16;  // bytes, of the scales that follow the codes, and of pages

int64_t codes_of_layer(int num_kv_heads, int page_size, int head_dim) {
  return int64_t{num_kv_heads} * page_size * head_dim;
}
/// Bytes of a page of all layers before its scales.
int64_t code_bytes(int num_layers, int64_t codes_of_layer) {
  return round_up(2 * num_layers * codes_of_layer, kScaleAlignment);
}

/// Bytes from keys to values of the same shape, strides and device.
int64_t distance(const char* k_name, const TensorView& k, const char* v_name, const TensorView& v) {
  HEDDLE_CHECK(k.device() == v.device(), v_name, " is on ", v.device(), ", ", k_name, " on ",
               k.device());
  for (int axis = 0; axis < k.rank(); ++axis) {
    HEDDLE_CHECK(k.stride(axis) == v.stride(axis), v_name, ".stride(", axis, ") is ",
                 v.stride(axis), ", expected ", k_name, "' = ", k.stride(axis));
  }
  const auto element = static_cast<int64_t>(size_of(k.dtype()));
  // As integers: they may be two allocations.
  const int64_t bytes = reinterpret_cast<intptr_t>(v.raw()) - reinterpret_cast<intptr_t>(k.raw());
  HEDDLE_CHECK(bytes % element == 0, v_name, " lies ", bytes, " bytes from ", k_name,
               ", expected a multiple of ", element);
  return bytes;
}

/// All but scales.
PagedKv pool_of(const TensorView& k_pages, const TensorView& v_pages) {
  Dim pages("num_pages"), heads("num_kv_heads"), slots("page_size"), head_dim("head_dim");
  check_shape("k_pages", k_pages, {&pages, &heads, &slots, &head_dim});
  check_shape("v_pages", v_pages, {&pages, &heads, &slots, &head_dim});
  check_dtype("k_pages", k_pages,
              {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3});
  check_dtype("v_pages", v_pages, {k_pages.dtype()});
  check_unit_stride("k_pages", k_pages);
  PagedKv cache;
  cache.dtype = k_pages.dtype();
  cache.device = k_pages.device();
  cache.pool = k_pages.raw();
  cache.num_pages = pages.value();
  cache.page_stride = k_pages.stride(0);
  cache.v_offset = distance("k_pages", k_pages, "v_pages", v_pages) /
                   static_cast<int64_t>(size_of(k_pages.dtype()));
  cache.head_stride = k_pages.stride(1);
  cache.slot_stride = k_pages.stride(2);
  cache.num_kv_heads = static_cast<int>(heads.value());
  cache.page_size = static_cast<int>(slots.value());
  cache.head_dim = static_cast<int>(head_dim.value());
  return cache;
}

/// All but scales, of pages of codes.
PagedKv pool_of_codes(const TensorView& k_pages, const TensorView& v_pages) {
  HEDDLE_CHECK(k_pages.dtype() == DType::kFloat8E4M3, "k_pages is ", k_pages.dtype(),
               ", but scales are given, which belong to f8e4m3");
  return pool_of(k_pages, v_pages);
}

}  // namespace

PagedKv PagedKv::from_pool(TensorView k_pages, TensorView v_pages) {
  if (k_pages.dtype() == DType::kFloat8E4M3) {
    throw_error(ErrorCode::kInvalidArgument,
                "k_pages is f8e4m3, whose scales are missing: expected k_scales and v_scales, a "
                "tensor or one number each");
  }
  return pool_of(k_pages, v_pages);
}

PagedKv PagedKv::from_pool(TensorView k_pages, TensorView v_pages, TensorView k_scales,
                           TensorView v_scales) {
  PagedKv cache = pool_of_codes(k_pages, v_pages);
  Dim pages("num_pages", cache.num_pages), heads("num_kv_heads", cache.num_kv_heads);
  Dim slots("page_size", cache.page_size);
  check_shape("k_scales", k_scales, {&pages, &heads, &slots});
  check_shape("v_scales", v_scales, {&pages, &heads, &slots});
  check_dtype("k_scales", k_scales, {DType::kFloat32});
  check_dtype("v_scales", v_scales, {DType::kFloat32});
  HEDDLE_CHECK(k_scales.device() == cache.device, "k_scales is on ", k_scales.device(),
               ", k_pages on ", cache.device);
  cache.has_token_scales = true;
  cache.scale_pool = k_scales.data<float>();
  cache.scale_page_stride = k_scales.stride(0);
  cache.v_scale_offset =
      distance("k_scales", k_scales, "v_scales", v_scales) / static_cast<int64_t>(sizeof(float));
  cache.scale_head_stride = k_scales.stride(1);
  cache.scale_slot_stride = k_scales.stride(2);
  return cache;
}

PagedKv PagedKv::from_pool(TensorView k_pages, TensorView v_pages, float k_scale, float v_scale) {
  return pool_of_codes(k_pages, v_pages).with_scales(k_scale, v_scale);
}

PagedKv PagedKv::from_pointers(DType dtype, Device device, int num_layers, int layer_idx,
                               int num_kv_heads, int page_size, int head_dim) {
  HEDDLE_CHECK(0 <= layer_idx && layer_idx < num_layers, "layer_idx is ", layer_idx,
               ", expected 0 to num_layers - 1 = ", num_layers - 1);
  const int64_t keys_of_layer = codes_of_layer(num_kv_heads, page_size, head_dim);
  PagedKv cache;
  cache.dtype = dtype;
  cache.device = device;
  cache.k_offset = 2 * layer_idx * keys_of_layer;
  cache.v_offset = cache.k_offset + keys_of_layer;
  cache.head_stride = int64_t{page_size} * head_dim;
  cache.slot_stride = head_dim;
  cache.num_kv_heads = num_kv_heads;
  cache.page_size = page_size;
  cache.head_dim = head_dim;
  if (dtype != DType::kFloat8E4M3) return cache;
  const int64_t scales_of_layer = int64_t{num_kv_heads} * page_size;
  cache.has_token_scales = true;
  cache.k_scale_offset = code_bytes(num_layers, keys_of_layer) / int64_t{sizeof(float)} +
                         2 * layer_idx * scales_of_layer;
  cache.v_scale_offset = cache.k_scale_offset + scales_of_layer;
  cache.scale_head_stride = page_size;
  cache.scale_slot_stride = 1;
  return cache;
}

PagedKv PagedKv::with_scales(float k_scale, float v_scale) const {
  PagedKv cache = *this;
  cache.has_token_scales = false;
  cache.k_scale = k_scale;
  cache.v_scale = v_scale;
  cache.scale_pool = nullptr;
  check_kv_scales(cache);
  return cache;
}

int64_t PagedKv::page_bytes(DType dtype, int num_layers, int num_kv_heads, int page_size,
                            int head_dim) {
  const int64_t codes = codes_of_layer(num_kv_heads, page_size, head_dim);
  if (dtype != DType::kFloat8E4M3) {
    return 2 * num_layers * codes * static_cast<int64_t>(size_of(dtype));
  }
  const int64_t scales = 2 * int64_t{num_layers} * num_kv_heads * page_size;
  return round_up(code_bytes(num_layers, codes) + scales * int64_t{sizeof(float)}, kScaleAlignment);
}

}  // namespace heddle
