#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "heddle/core/tensor_view.h"
#include "heddle/dlpack.h"

#include "mirror.h"
#include "random.h"

namespace heddle::testing {

/// One tensor of a call, without gaps.
struct CallTensor {
  enum class Use {
    kRead,
    kInPlace,
    kWritten,
    kScratch,  // written with what depends on addresses, so that two calls differ
    kMemory,   // no argument: a later tensor holds addresses in it
    kAbsent,
  };

  std::string name;  // in errors
  DType dtype;
  std::vector<int64_t> shape;
  Use use;
  std::vector<std::byte> values;  // none: poison, all bits 1
  bool is_optional = false;       // NULL means what an absent view means in C++
  std::string if_null{};          // the message for NULL; "": "<name> is NULL"
  bool has_view = true;           // false: C++ takes a pointer, and C alone checks the tensor
  int64_t step = 0;  // not 0: addresses in the memory before, the last one first, so far apart

  CallTensor optional() const {
    return with([](CallTensor& t) { t.is_optional = true; });
  }
  CallTensor checked_by_c() const {
    return with([](CallTensor& t) { t.has_view = false; });
  }
  CallTensor null_says(const std::string& message) const {
    return with([&](CallTensor& t) { t.if_null = message; });
  }
  CallTensor used_as(Use other) const {
    return with([&](CallTensor& t) { t.use = other; });
  }
  CallTensor addresses(int64_t bytes_apart) const {
    return with([&](CallTensor& t) { t.step = bytes_apart; });
  }
  [[nodiscard]] size_t num_elements() const {
    size_t n = 1;
    for (const int64_t extent : shape) n *= size_t(extent);
    return n;
  }

 private:
  template <class Change>
  [[nodiscard]] CallTensor with(const Change& change) const {
    CallTensor other = *this;
    change(other);
    return other;
  }
};

template <class T>
CallTensor out(std::string name, std::vector<int64_t> shape) {
  return {std::move(name), kDType<T>, std::move(shape), CallTensor::Use::kWritten, {}};
}
/// These values; of a floating point type, random ones where none are given.
template <class T>
CallTensor in(std::string name, std::vector<int64_t> shape, std::vector<T> values = {}) {
  CallTensor tensor = out<T>(std::move(name), std::move(shape)).used_as(CallTensor::Use::kRead);
  if constexpr (!std::is_integral_v<T>) {
    if (values.empty()) values = random_normal<T>(tensor.num_elements());
  }
  const auto bytes = std::as_bytes(std::span(values));
  tensor.values.assign(bytes.begin(), bytes.end());
  return tensor;
}
inline CallTensor absent() { return out<float>("", {0}).used_as(CallTensor::Use::kAbsent); }
template <class T>
CallTensor in_place(std::string name, std::vector<int64_t> shape, std::vector<T> values = {}) {
  return in<T>(std::move(name), std::move(shape), std::move(values))
      .used_as(CallTensor::Use::kInPlace);
}

inline DLDataType c_dtype(DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * size_of(dtype));
  switch (dtype) {
    case DType::kFloat32:
    case DType::kFloat16: return {kDLFloat, bits, 1};
    case DType::kBFloat16: return {kDLBfloat, bits, 1};
    case DType::kUInt8: return {kDLUInt, bits, 1};
    case DType::kBool: return {kDlpackBool, bits, 1};
    case DType::kFloat8E4M3: return {kDlpackFloat8E4m3fn, bits, 1};
    default: return {kDLInt, bits, 1};
  }
}
/// A view of any device as a DLTensor, good as long as the view.
inline DLTensor c_tensor(const TensorView& t) {
  return {.data = t.raw(),
          .device = {t.device().type == DeviceType::kCuda ? kDLCUDA : kDLCPU, t.device().index},
          .ndim = t.rank(),
          .dtype = c_dtype(t.dtype()),
          .shape = const_cast<int64_t*>(t.shape().data()),
          .strides = const_cast<int64_t*>(t.strides().data()),
          .byte_offset = 0};
}

/// A CallTensor in memory of its own, between guards on either device.
class PlacedTensor {
 public:
  PlacedTensor(const CallTensor& tensor, Mirror& mirror, const PlacedTensor* memory)
      : spec(tensor),
        size_(spec.num_elements() * size_of(spec.dtype)),
        blocks_(size_ / sizeof(Block) + 3, poison()) {
    std::ranges::copy(spec.values, values().begin());
    for (size_t i = 0; spec.step != 0 && i < spec.num_elements(); ++i) {
      const auto later = int64_t(spec.num_elements() - 1 - i);
      const std::byte* address = memory->intact_.raw() + later * spec.step;
      std::memcpy(&values()[i * sizeof(address)], &address, sizeof(address));
    }
    before_ = blocks_;
    intact_ = mirror(TensorView{values().data(), spec.dtype, {}, std::span(spec.shape)});
    restore();
  }
  PlacedTensor(const PlacedTensor&) = delete;
  PlacedTensor& operator=(const PlacedTensor&) = delete;

  /// What the next call gets in either language: intact, unless a test has changed `given`.
  [[nodiscard]] DLTensor* c() { return is_absent ? nullptr : &given; }
  [[nodiscard]] TensorView cpp() const {
    if (is_absent) return {};
    return spec.has_view ? heddle::view(spec.name.c_str(), given) : intact_;
  }
  void restore() {
    given = c_tensor(intact_);
    is_absent = spec.use == CallTensor::Use::kAbsent;
  }
  /// The values after Mirror::back(), and whether they, or the guards, have changed, or differ.
  [[nodiscard]] std::span<std::byte> values() { return {blocks_[1].bytes, size_}; }
  [[nodiscard]] bool is_unchanged() const { return blocks_ == before_; }
  [[nodiscard]] bool has_bits_of(const PlacedTensor& t) const { return blocks_ == t.blocks_; }

  const CallTensor spec;
  DLTensor given{};
  bool is_absent = false;

 private:
  /// The size of guards, and the alignment that the plans of lora need.
  struct alignas(256) Block {
    std::byte bytes[256];
    friend bool operator==(const Block&, const Block&) = default;
  };
  static Block poison() {
    Block block;
    std::ranges::fill(block.bytes, std::byte{0xFF});
    return block;
  }

  size_t size_;
  std::vector<Block> blocks_, before_;
  TensorView intact_;
};

/// The tensors of one call on one device.
struct PlacedTensors : std::deque<PlacedTensor> {
  PlacedTensors(const std::vector<CallTensor>& tensors, Mirror& mirror) {
    const PlacedTensor* memory = nullptr;
    for (const CallTensor& t : tensors) {
      emplace_back(t, mirror, memory);
      if (t.use == CallTensor::Use::kMemory) memory = &back();
    }
  }
};

}  // namespace heddle::testing
