#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <type_traits>

#include <gtest/gtest.h>

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"

#include "compare.h"
#include "mirror.h"
#include "poison.h"
#include "random.h"

namespace heddle::testing {

/// An operation y = T(f(gate) * up) and its definition in double.
struct GatedOp {
  std::function<void(const ExecContext&, TensorView, ConstTensorView, ConstTensorView)> run;
  std::function<double(double gate, double up)> want;
  /// s, where f(gate) of a negative gate falls like exp(-s): the error of an exponential grows with
  /// its exponent.
  std::function<double(double gate)> exponent;
};

/// How far y may be from its definition, before the rounding to T and after it.
template <class T>
double gated_limit(const GatedOp& op, double gate, double want) {
  const double relative = kRounding<T> + 0x1p-20 + op.exponent(gate) * 0x1p-22;
  const double smallest = std::is_same_v<T, half> ? 0x1p-25 : 0x1p-118;  // subnormal, or flushed
  return std::abs(want) * relative + smallest;
}

/// A matrix between poisoned guards whose rows have gaps, at addresses that are multiples of 16
/// bytes or not.
template <class T>
struct GatedMatrix {
  int64_t rows, width, offset, stride;
  PoisonedBuffer<T> memory;

  GatedMatrix(int64_t its_rows, int64_t its_width, bool aligned)
      : rows(its_rows),
        width(its_width),
        offset(aligned ? 0 : random_int(0, 9)),
        stride(width + (aligned ? 8 * random_int(0, 2) : random_int(0, 9))),
        memory(size_t(offset + rows * stride)) {}

  void fill(float scale) {
    const auto values = random_normal<T>(memory.size(), scale);
    std::copy(values.begin(), values.end(), memory.data());
  }
  T& at(int64_t row, int64_t column) { return memory[size_t(offset + row * stride + column)]; }
  TensorView view() {
    return {reinterpret_cast<std::byte*>(memory.data() + offset),
            kDType<T>,
            {},
            std::array{rows, width},
            std::array{stride, int64_t{1}}};
  }
};

/// One call of random shape, strides and addresses, into a matrix of its own or over one of the
/// inputs.
template <class T>
void check_gated(const ExecContext& ctx, Mirror& mirror, const GatedOp& op) {
  const bool aligned = random_int(0, 1) == 1;
  const int64_t some_width = pick<int64_t>({0, 1, 3, 8, 15, 17, 100, 1536, 2100, 5000});
  const int64_t rows = random_int(0, 7), width = aligned ? some_width / 8 * 8 : some_width;
  GatedMatrix<T> gate(rows, width, aligned), up(rows, width, aligned), apart(rows, width, aligned);
  gate.fill(4.0f);
  up.fill(1.0f);
  GatedMatrix<T> first_gate = gate, first_up = up;
  GatedMatrix<T>& y = *pick({&gate, &up, &apart});
  GatedMatrix<T> before = y;

  const TensorView gate_there = mirror(gate.view()), up_there = mirror(up.view());
  const TensorView y_there = &y == &gate ? gate_there : &y == &up ? up_there : mirror(apart.view());
  op.run(ctx, y_there, gate_there, up_there);
  mirror.back();

  EXPECT_TRUE(y.memory.guards_intact());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < width; ++i) {
      const double g = to_float(first_gate.at(r, i)), u = to_float(first_up.at(r, i));
      const double want = op.want(g, u);
      ASSERT_LE(std::abs(to_float(y.at(r, i)) - want), gated_limit<T>(op, g, want))
          << "gate " << g << ", up " << u << ", row " << r << " of " << rows << ", column " << i
          << " of " << width;
    }
    for (int64_t i = width; i < y.stride; ++i) {
      ASSERT_EQ(std::memcmp(&y.at(r, i), &before.at(r, i), sizeof(T)), 0) << "in a gap";
    }
  }
}

}  // namespace heddle::testing
