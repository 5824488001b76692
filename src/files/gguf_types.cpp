#include "files/gguf_types.h"

namespace heddle::files {
namespace {

// The tensor types of ggml. Those that heddle does not compute with are here for inspection and for
// messages.
constexpr GgmlType kGgmlTypes[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 40},      {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},
};

}  // namespace

const char* name(GgufType type) {
  switch (type) {
    case GgufType::kUInt8: return "u8";
    case GgufType::kInt8: return "i8";
    case GgufType::kUInt16: return "u16";
    case GgufType::kInt16: return "i16";
    case GgufType::kUInt32: return "u32";
    case GgufType::kInt32: return "i32";
    case GgufType::kFloat32: return "f32";
    case GgufType::kBool: return "bool";
    case GgufType::kString: return "string";
    case GgufType::kArray: return "array";
    case GgufType::kUInt64: return "u64";
    case GgufType::kInt64: return "i64";
    case GgufType::kFloat64: return "f64";
  }
  return "?";
}

size_t fixed_size(GgufType type) {
  switch (type) {
    case GgufType::kUInt8:
    case GgufType::kInt8:
    case GgufType::kBool: return 1;
    case GgufType::kUInt16:
    case GgufType::kInt16: return 2;
    case GgufType::kUInt32:
    case GgufType::kInt32:
    case GgufType::kFloat32: return 4;
    case GgufType::kUInt64:
    case GgufType::kInt64:
    case GgufType::kFloat64: return 8;
    case GgufType::kString:
    case GgufType::kArray: break;
  }
  return 0;
}

const GgmlType* find_ggml_type(uint32_t id) {
  for (const GgmlType& type : kGgmlTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

std::string ggml_type_name(uint32_t id) {
  const GgmlType* type = find_ggml_type(id);
  return type != nullptr ? type->name : "type " + std::to_string(id);
}

std::optional<WeightType> weight_type_of(uint32_t id) {
  switch (id) {
    case 0: return WeightType::kF32;
    case 1: return WeightType::kF16;
    case 2: return WeightType::kQ4_0;
    case 3: return WeightType::kQ4_1;
    case 6: return WeightType::kQ5_0;
    case 7: return WeightType::kQ5_1;
    case 8: return WeightType::kQ8_0;
    case 12: return WeightType::kQ4K;
    case 13: return WeightType::kQ5K;
    case 14: return WeightType::kQ6K;
    case 30: return WeightType::kBF16;
    default: return std::nullopt;
  }
}

std::string supported_ggml_types() {
  std::string list;
  for (const GgmlType& type : kGgmlTypes) {
    if (!weight_type_of(type.id)) continue;
    list += std::string(list.empty() ? "" : ", ") + type.name;
  }
  return list;
}

}  // namespace heddle::files
