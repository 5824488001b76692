#pragma once

#include <cstdint>

namespace heddle::cpu::attention {

/// to[i] = To(from[i]), i < n: rounded once, to nearest, ties to even.
template <class From, class To>
void convert_row(const From* from, To* to, int64_t n);

}  // namespace heddle::cpu::attention
