#pragma once

#include "heddle/core/count.h"

#include "capi/convert.h"

namespace heddle::capi {

inline Count count_of(const char* name, const heddle_count* count) {
  const heddle_count& c = required(name, count);
  return c.on_device != nullptr ? Count(in(name, c.on_device)) : Count(c.value);
}
inline Count count_or_absent(const char* name, const heddle_count* count) {
  return count == nullptr ? Count() : count_of(name, count);
}

}  // namespace heddle::capi
