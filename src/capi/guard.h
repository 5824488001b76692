#pragma once

#include <cstdint>

#include "heddle/c_api.h"
#include "heddle/core/error.h"

#include "capi/c_context.h"
#include "capi/last_error.h"

namespace heddle::capi {

/// Runs the body of a C function that returns a size: SIZE_MAX, which no memory has, where it
/// fails.
template <class Body>
[[nodiscard]] size_t guard_size(const Body& body) noexcept {
  size_t bytes = SIZE_MAX;
  return guard([&] { bytes = body(); }) == HEDDLE_OK ? bytes : SIZE_MAX;
}

/// Runs the body of a function of a context, whose device is the thread's current one meanwhile:
/// body(const ExecContext&).
template <class Body>
[[nodiscard]] heddle_status guard(heddle_context* context, const Body& body) noexcept {
  return guard([&] {
    HEDDLE_CHECK(context != nullptr, "context is NULL");
    const ExecContext& ctx = context->exec();
    const ScopedDevice on_device(ctx.device);
    body(ctx);
  });
}

}  // namespace heddle::capi
