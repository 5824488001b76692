#include "ops/metadata/index_runs.h"

#include <cstring>

namespace heddle::cpu::metadata {
namespace {

/// Calls run(pointer to element `at`, step), where the step is a constant 1 if it can be, for the
/// compiler to vectorise.
template <class T, class Byte, class Run>
void with_step(const BasicIndexList<Byte>& t, int64_t at, const Run& run) {
  using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
  auto* first = reinterpret_cast<Element*>(t.data) + at * t.stride;
  if (t.stride == 1) {
    run(first, std::integral_constant<int64_t, 1>{});
  } else {
    run(first, t.stride);
  }
}

template <class Byte, class Run>
void with_elements(const BasicIndexList<Byte>& t, int64_t at, const Run& run) {
  if (t.is_int64) {
    with_step<int64_t>(t, at, run);
  } else {
    with_step<int32_t>(t, at, run);
  }
}

}  // namespace

void copy_long_run(const IndexList& to, int64_t at, const ConstIndexList& from, int64_t first,
                   int64_t n) {
  if (to.is_int64 == from.is_int64 && to.stride == 1 && from.stride == 1) {
    const int64_t bytes = to.is_int64 ? 8 : 4;
    std::memcpy(to.data + at * bytes, from.data + first * bytes, static_cast<size_t>(n * bytes));
    return;
  }
  with_elements(to, at, [&]<class To>(To* y, auto y_step) {
    with_elements(from, first, [&](const auto* x, auto x_step) {
      for (int64_t i = 0; i < n; ++i) y[i * y_step] = static_cast<To>(x[i * x_step]);
    });
  });
}

void count_long_run(const IndexList& to, int64_t at, int64_t n, int64_t first) {
  with_elements(to, at, [&]<class To>(To* y, auto y_step) {
    for (int64_t i = 0; i < n; ++i) y[i * y_step] = static_cast<To>(first + i);
  });
}

void fill_long_run(const IndexList& to, int64_t at, int64_t n, int64_t value) {
  with_elements(to, at, [&]<class To>(To* y, auto y_step) {
    for (int64_t i = 0; i < n; ++i) y[i * y_step] = static_cast<To>(value);
  });
}

}  // namespace heddle::cpu::metadata
