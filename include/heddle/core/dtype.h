#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <ostream>

namespace heddle {

enum class DType : uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kInt32,
  kInt64,
  kUInt8,
  kBool,
  kFloat8E4M3,
};

/// Storage types: host code holds and copies them; arithmetic goes through `to_float` and
/// `from_float`.
struct half {
  uint16_t bits;
};
struct bfloat16 {
  uint16_t bits;
};
/// Sign, 4 bits of exponent (bias 7), 3 of fraction; no infinity, NaN is 0x7f or 0xff, the largest
/// value is 448. What other libraries call float8_e4m3fn; Micikevicius et al. 2022, arXiv
/// 2209.05433.
struct float8_e4m3 {
  uint8_t bits;
};

template <class T>
inline constexpr DType kDType = [] {
  static_assert(sizeof(T) == 0, "no heddle::DType stands for this type");
  return DType{};
}();
template <>
inline constexpr DType kDType<float> = DType::kFloat32;
template <>
inline constexpr DType kDType<half> = DType::kFloat16;
template <>
inline constexpr DType kDType<bfloat16> = DType::kBFloat16;
template <>
inline constexpr DType kDType<float8_e4m3> = DType::kFloat8E4M3;
template <>
inline constexpr DType kDType<int32_t> = DType::kInt32;
template <>
inline constexpr DType kDType<int64_t> = DType::kInt64;
template <>
inline constexpr DType kDType<uint8_t> = DType::kUInt8;
template <>
inline constexpr DType kDType<bool> = DType::kBool;

/// Bytes of one element.
[[nodiscard]] constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kInt32: return 4;
    case DType::kInt64: return 8;
    case DType::kFloat16:
    case DType::kBFloat16: return 2;
    case DType::kUInt8:
    case DType::kBool:
    case DType::kFloat8E4M3: return 1;
  }
  return 0;
}

/// "f32", "f16", "bf16", "i32", "i64", "u8", "bool" or "f8e4m3".
[[nodiscard]] const char* name(DType dtype);
inline std::ostream& operator<<(std::ostream& os, DType dtype) { return os << name(dtype); }

[[nodiscard]] constexpr float to_float(float x) { return x; }
[[nodiscard]] constexpr float to_float(bfloat16 x) {
  return std::bit_cast<float>(uint32_t{x.bits} << 16);
}
[[nodiscard]] constexpr float to_float(half x) {
  const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16;
  const uint32_t magnitude = x.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // infinity and NaN keep their payload
    return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  }
  if (magnitude < 0x400u) {  // zero and subnormals: magnitude * 2^-24, which f32 holds exactly
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(sign | ((magnitude + (112u << 10)) << 13));
}

[[nodiscard]] constexpr float to_float(float8_e4m3 x) {
  const uint32_t sign = uint32_t{x.bits & 0x80u} << 24;
  const uint32_t magnitude = x.bits & 0x7fu;
  if (magnitude == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude < 8u) {  // zero and subnormals: magnitude * 2^-9
    const float value = static_cast<float>(magnitude) * 0x1p-9f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(sign | ((magnitude + (120u << 3)) << 20));
}

/// T(x), rounded to nearest, ties to even; NaN stays NaN, overflow gives infinity. float8_e4m3 has
/// none: what is larger than 448, infinity included, becomes 448, and NaN becomes 0x7f.
template <class T>
[[nodiscard]] constexpr T from_float(float x);
template <>
constexpr float from_float<float>(float x) {
  return x;
}
template <>
constexpr bfloat16 from_float<bfloat16>(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
template <>
constexpr half from_float<half>(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return {static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu))};
  }
  if (magnitude >= 0x477ff000u) {  // rounds past 65504
    return {static_cast<uint16_t>(sign | 0x7c00u)};
  }
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 leaves the multiple of 2^-24 in the low bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13))};
}
template <>
constexpr float8_e4m3 from_float<float8_e4m3>(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {0x7fu};
  if (magnitude >= 0x43e00000u) return {static_cast<uint8_t>(sign | 0x7eu)};  // 448 and more
  if (magnitude < 0x3c800000u) {
    // Below 2^-6: adding 2^14 leaves the multiple of 2^-9 in the low bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
    return {static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x46800000u))};
  }
  const uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  return {static_cast<uint8_t>(sign | ((rounded - (120u << 23)) >> 20))};
}

}  // namespace heddle
