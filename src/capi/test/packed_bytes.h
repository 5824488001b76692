#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "heddle/ops/linear.h"

#include "random.h"

namespace heddle::testing {

/// The packed bytes of a weight of small random values, 64-byte aligned.
class PackedBytes {
 public:
  PackedBytes(WeightType type, int64_t out_features, int64_t in_features)
      : stored_(stored_bytes(type, out_features * in_features)),
        size_(packed_bytes(type, out_features, in_features)),
        room_(size_ + kAlignment),
        view_{type, out_features, in_features, reinterpret_cast<const std::byte*>(data())} {
    for (uint8_t& byte : stored_) byte = static_cast<uint8_t>(random_int(0, 50));
    pack_rows({}, std::as_writable_bytes(std::span(data(), size_)), type, out_features, in_features,
              0, out_features, std::as_bytes(std::span(stored_)));
  }
  PackedBytes(const PackedBytes&) = delete;
  PackedBytes& operator=(const PackedBytes&) = delete;

  [[nodiscard]] uint8_t* data() {
    return room_.data() + (kAlignment - reinterpret_cast<uintptr_t>(room_.data()) % kAlignment);
  }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] const PackedWeight& view() const { return view_; }

 private:
  static constexpr size_t kAlignment = 64;
  std::vector<uint8_t> stored_;
  size_t size_;
  std::vector<uint8_t> room_;
  PackedWeight view_;
};

}  // namespace heddle::testing
