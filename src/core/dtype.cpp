#include "heddle/core/dtype.h"

namespace heddle {

const char* name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return "f32";
    case DType::kFloat16: return "f16";
    case DType::kBFloat16: return "bf16";
    case DType::kInt32: return "i32";
    case DType::kInt64: return "i64";
    case DType::kUInt8: return "u8";
    case DType::kBool: return "bool";
    case DType::kFloat8E4M3: return "f8e4m3";
  }
  return "?";
}

}  // namespace heddle
