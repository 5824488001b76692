#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "heddle/ops/lora_table.h"

namespace heddle::ref {

/// A sum in double, and that of its terms' magnitudes, to which errors are compared.
struct Sum {
  double value = 0, size = 0;

  void add(double term) {
    value += term;
    size += std::abs(term);
  }
  void multiply(double factor) {
    value *= factor;
    size *= std::abs(factor);
  }
};

/// y = factor y + scale offset. values: those of the entry.
inline void apply_affine(std::vector<Sum>& y, std::span<const float> values,
                         const LoraWeight& entry, double scale) {
  for (size_t i = 0; i < y.size(); ++i) {
    y[i].multiply(double{values[i]});
    if (entry.rank == 2) y[i].add(scale * double{values[size_t(entry.row_stride) + i]});
  }
}

}  // namespace heddle::ref
