#pragma once

#include <cstdint>

namespace heddle::cpu::attention {

/// o[i] = T(weight_a a[i] + weight_b b[i]), i < n; a state of weight 0 is not read, both 0 give
/// zeros.
template <class T>
void merge_row(const T* a, float weight_a, const T* b, float weight_b, int64_t n, T* o);

}  // namespace heddle::cpu::attention
