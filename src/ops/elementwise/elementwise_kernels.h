#pragma once

#include <cstdint>

namespace heddle::cpu::elementwise {

/// x [n], in place; y [n].
void add(float* x, const float* y, int64_t n);
void scale(float* x, int64_t n, float factor);
void soft_cap(float* x, int64_t n, float cap);

}  // namespace heddle::cpu::elementwise
