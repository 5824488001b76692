// Typed access to the metadata of a GGUF file.
#include <cstring>
#include <type_traits>
#include <utility>

#include "heddle/core/error.h"

#include "files/gguf.h"
#include "files/printable.h"

namespace heddle::files {
namespace {

template <class T>
constexpr const char* kWanted = nullptr;
template <>
constexpr const char* kWanted<bool> = "bool";
template <>
constexpr const char* kWanted<std::string_view> = "string";
template <>
constexpr const char* kWanted<int32_t> = "i32";
template <>
constexpr const char* kWanted<uint32_t> = "u32";
template <>
constexpr const char* kWanted<int64_t> = "i64";
template <>
constexpr const char* kWanted<uint64_t> = "u64";
template <>
constexpr const char* kWanted<float> = "f32";
template <>
constexpr const char* kWanted<double> = "f64";

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

/// Calls use(element) with the element in the type that the file has it in.
template <class Use>
void visit_element(GgufType type, const std::byte* at, const Use& use) {
  switch (type) {
    case GgufType::kUInt8: return use(load<uint8_t>(at));
    case GgufType::kInt8: return use(load<int8_t>(at));
    case GgufType::kUInt16: return use(load<uint16_t>(at));
    case GgufType::kInt16: return use(load<int16_t>(at));
    case GgufType::kUInt32: return use(load<uint32_t>(at));
    case GgufType::kInt32: return use(load<int32_t>(at));
    case GgufType::kFloat32: return use(load<float>(at));
    case GgufType::kBool: return use(load<uint8_t>(at) != 0);
    case GgufType::kUInt64: return use(load<uint64_t>(at));
    case GgufType::kInt64: return use(load<int64_t>(at));
    case GgufType::kFloat64: return use(load<double>(at));
    case GgufType::kString:
      return use(std::string_view(reinterpret_cast<const char*>(at) + sizeof(uint64_t),
                                  load<uint64_t>(at)));
    case GgufType::kArray: return;  // the parser lets no array of arrays through
  }
}

/// Whether every element of type U may stand for a T, its value allowing.
template <class T, class U>
constexpr bool kTakes = std::is_same_v<T, U> ||
                        (std::is_integral_v<U> && std::is_arithmetic_v<T> &&
                         !std::is_same_v<T, bool> && !std::is_same_v<U, bool>) ||
                        (std::is_floating_point_v<T> && std::is_floating_point_v<U>);

template <class T>
T convert(const std::string& file, const GgufValue& value, const std::byte* at) {
  T result{};
  visit_element(value.type, at, [&]<class U>(const U& element) {
    if constexpr (!kTakes<T, U>) {
      throw_error(ErrorCode::kInvalidArgument, file, ": metadata value ", quote(value.key),
                  " has type ", value.type, ", expected ", kWanted<T>);
    } else {
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
        HEDDLE_CHECK(std::in_range<T>(element), file, ": metadata value ", quote(value.key), " is ",
                     +element, ", which does not fit ", kWanted<T>);
      }
      result = static_cast<T>(element);
    }
  });
  return result;
}

const GgufValue& require(const GgufFile& file, std::string_view key, bool is_array) {
  const GgufValue* value = file.find(key);
  HEDDLE_CHECK(value != nullptr, file.path(), ": has no metadata value ", quote(key));
  HEDDLE_CHECK(value->is_array == is_array, file.path(), ": metadata value ", quote(key),
               value->is_array ? " is an array, expected a single value"
                               : " is a single value, expected an array");
  return *value;
}

}  // namespace

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = key_index_.find(key);
  return found == key_index_.end() ? nullptr : &metadata_[found->second];
}

template <class T>
T GgufFile::get(std::string_view key) const {
  const GgufValue& value = require(*this, key, false);
  return convert<T>(name_, value, value.bytes.data());
}

template <class T>
std::vector<T> GgufFile::get_array(std::string_view key) const {
  const GgufValue& value = require(*this, key, true);
  std::vector<T> elements;
  elements.reserve(value.count);
  const std::byte* at = value.bytes.data();
  for (uint64_t i = 0; i < value.count; ++i) {
    elements.push_back(convert<T>(name_, value, at));
    at += value.type == GgufType::kString ? sizeof(uint64_t) + load<uint64_t>(at)
                                          : fixed_size(value.type);
  }
  return elements;
}

#define HEDDLE_GGUF_GET(T)                             \
  template T GgufFile::get<T>(std::string_view) const; \
  template std::vector<T> GgufFile::get_array<T>(std::string_view) const;
HEDDLE_GGUF_GET(bool)
HEDDLE_GGUF_GET(std::string_view)
HEDDLE_GGUF_GET(int32_t)
HEDDLE_GGUF_GET(uint32_t)
HEDDLE_GGUF_GET(int64_t)
HEDDLE_GGUF_GET(uint64_t)
HEDDLE_GGUF_GET(float)
HEDDLE_GGUF_GET(double)

}  // namespace heddle::files
