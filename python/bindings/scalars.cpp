#include "bindings/scalars.h"

#include <charconv>
#include <cstring>
#include <sstream>
#include <string_view>
#include <system_error>

#include "heddle/core/error.h"

#include "bindings/name_of_type.h"

namespace heddle::python {

DType dtype_named(const char* argument, const char* wanted) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt32,
                            DType::kInt64, DType::kUInt8, DType::kBool, DType::kFloat8E4M3}) {
    if (std::strcmp(name(dtype), wanted) == 0) return dtype;
  }
  throw_error(ErrorCode::kInvalidArgument, argument, " is \"", wanted,
              "\", expected f32, f16, bf16, i32, i64, u8, bool or f8e4m3");
}

DType dtype_or(const char* argument, nanobind::handle name, DType otherwise) {
  if (name.is_none()) return otherwise;
  const char* text =
      PyUnicode_Check(name.ptr()) ? PyUnicode_AsUTF8AndSize(name.ptr(), nullptr) : nullptr;
  if (text == nullptr) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s is a %s, expected a str or None", argument,
                 name_of_type(name).c_str());
    throw nanobind::python_error();
  }
  return dtype_named(argument, text);
}

Device device_named(nanobind::handle device) {
  const nanobind::str text{device};
  const std::string_view name = text.c_str();
  if (name == "cpu") return {};
  constexpr std::string_view kCuda = "cuda", kCudaIndex = "cuda:";
  if (name == kCuda) return {DeviceType::kCuda, 0};
  int index = -1;
  if (name.starts_with(kCudaIndex)) {
    const char* end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + kCudaIndex.size(), end, index);
    if (read.ec != std::errc{} || read.ptr != end) index = -1;
  }
  HEDDLE_CHECK(index >= 0, "device is \"", name, "\", expected \"cpu\", \"cuda\" or \"cuda:0\"");
  return {DeviceType::kCuda, index};
}

std::string name_of(Device device) {
  std::ostringstream text;
  text << device;
  return text.str();
}

LoraLayout layout_named(const char* name) {
  if (std::strcmp(name, "rank_major") == 0) return LoraLayout::kRankMajor;
  HEDDLE_CHECK(std::strcmp(name, "rank_minor") == 0, "layout is \"", name,
               "\", expected \"rank_major\" or \"rank_minor\"");
  return LoraLayout::kRankMinor;
}

RopeParams rope_params(double theta, double scale, int rotary_dim, const Llama3Numbers& llama3) {
  RopeParams params{.theta = theta, .scale = scale, .rotary_dim = rotary_dim};
  if (llama3) {
    params.llama3 = {.factor = (*llama3)[0],
                     .low_freq_factor = (*llama3)[1],
                     .high_freq_factor = (*llama3)[2],
                     .original_max_position = (*llama3)[3]};
  }
  return params;
}

}  // namespace heddle::python
