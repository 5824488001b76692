#pragma once

#include "ops/metadata/indices_cuda.h"
#include "ops/metadata/packed_indices.h"

namespace heddle::cuda::metadata {

template <class Byte>
__device__ Byte* address_of(const BasicPacked<Byte>& t, int64_t i) {
  return t.data + i * (t.step & ~int64_t{1});
}
/// Of an absent tensor zero.
template <class Byte>
__device__ RawIndex load_raw(const BasicPacked<Byte>& t, int64_t i, bool is_there = true) {
  return load_raw(address_of(t, i), (t.step & 1) != 0, is_there && t.data != nullptr);
}
template <class Byte>
__device__ int64_t load(const BasicPacked<Byte>& t, int64_t i) {
  return load_raw(t, i).value();
}
__device__ inline void store(const Packed& t, int64_t i, int64_t value) {
  store_at(address_of(t, i), (t.step & 1) != 0, value);
}
__device__ inline void store_if(const Packed& t, int64_t i, int64_t value) {
  if (t.data != nullptr) store(t, i, value);
}
template <class Byte>
__device__ BasicPacked<Byte> row_of(const BasicPackedRows<Byte>& t, int64_t row) {
  BasicPacked<Byte> result = t.row;
  result.data += row * t.row_step;
  return result;
}

template <class Number>
__device__ RawIndex load_raw(const BasicPlain<Number>& t, int64_t i, bool is_there = true) {
  return {load_word_if(t.data + i, is_there && t.data != nullptr), 0, false};
}
__device__ inline void store(const BasicPlain<int32_t>& t, int64_t i, int64_t value) {
  t.data[i] = static_cast<int32_t>(value);
}
__device__ inline void store_if(const BasicPlain<int32_t>& t, int64_t i, int64_t value) {
  if (t.data != nullptr) store(t, i, value);
}
template <class Number>
__device__ BasicPlain<Number> row_of(const BasicPlainRows<Number>& t, int row) {
  BasicPlain<Number> result = t.row;
  result.data += int64_t{row} * t.row_step;
  return result;
}

}  // namespace heddle::cuda::metadata
