#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "heddle/c_engine.h"
#include "heddle/core/error.h"
#include "heddle/engine/engine.h"

namespace heddle::capi {

// What a caller in C gives, as the engine takes it. All throw Error, which names the argument.

inline constexpr size_t kMaxName = 1024, kMaxPath = 4096, kMaxText = size_t{1} << 30;  // bytes

template <class T>
T& required(const char* name, T* pointer) {
  HEDDLE_CHECK(pointer != nullptr, name, " is NULL");
  return *pointer;
}

[[nodiscard]] std::string string_of(const char* name, heddle_string text, size_t limit = kMaxText);
/// Of a file or folder: a NUL byte would end it for the system.
[[nodiscard]] std::string path_of(const char* name, heddle_string text);

[[nodiscard]] std::vector<RequestVariant> variants_of(const heddle_engine_variant* given,
                                                      size_t count);
[[nodiscard]] Request request_of(const heddle_engine_request& given);
[[nodiscard]] EngineOptions options_of(heddle_string model, const heddle_engine_options& given);

/// The text as C sees it, with a NUL byte at its end; points into `text`.
[[nodiscard]] inline heddle_string view_of(const std::string& text) {
  return {text.c_str(), text.size()};
}

}  // namespace heddle::capi
