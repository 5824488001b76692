#pragma once

#include <array>
#include <limits>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/embedding.h"

#include "mirror.h"
#include "ops/embedding/test/embedding_ref.h"
#include "poison.h"
#include "random.h"

namespace heddle::testing {

template <class Table, class Output, class Id>
struct EmbeddingCase {
  using T = Table;
  using Y = Output;
  using I = Id;
};
using EmbeddingTypes =
    ::testing::Types<EmbeddingCase<float, float, int32_t>, EmbeddingCase<half, float, int64_t>,
                     EmbeddingCase<half, half, int32_t>, EmbeddingCase<bfloat16, float, int32_t>,
                     EmbeddingCase<bfloat16, bfloat16, int64_t>,
                     EmbeddingCase<half, float, int32_t>>;

template <class View, class T>
View strided(T* data, int64_t rows, int64_t width, int64_t stride) {
  const std::array<int64_t, 2> shape{rows, width}, strides{stride, 1};
  using Byte = std::remove_pointer_t<decltype(View().raw())>;
  return View(reinterpret_cast<Byte*>(data), kDType<std::remove_const_t<T>>, {}, shape, strides);
}

/// Random tables and ids, about one in ten outside, rows with the gaps given.
template <class Case>
void expect_embedding(const ExecContext& ctx, Mirror& mirror, int64_t width, int64_t table_gap,
                      int64_t y_gap) {
  using T = typename Case::T;
  using Y = typename Case::Y;
  using I = typename Case::I;
  const int64_t vocab = random_int(1, 40), tokens = random_int(1, 90);
  const int64_t table_stride = width + table_gap, y_stride = width + y_gap, id_stride = 2;
  auto table = random_normal<T>(size_t(vocab * width), 1e-3f);  // f16: subnormals, too
  table[0] = from_float<T>(std::numeric_limits<float>::infinity());
  PoisonedBuffer<T> padded(size_t(vocab * table_stride));
  for (int64_t i = 0; i < vocab * width; ++i) {
    padded[size_t(i / width * table_stride + i % width)] = table[size_t(i)];
  }
  PoisonedBuffer<I> ids(size_t(tokens * id_stride));
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t id = random_int(-2, vocab + 1);
    const I far = pick({std::numeric_limits<I>::min(), std::numeric_limits<I>::max()});
    ids[size_t(t * id_stride)] = id == -2 ? far : static_cast<I>(id);
  }
  PoisonedBuffer<Y> y(size_t(tokens * y_stride));
  const std::array<int64_t, 1> id_shape{tokens}, id_strides{id_stride};
  embedding(ctx, mirror(strided<TensorView>(y.data(), tokens, width, y_stride)),
            mirror(ConstTensorView(reinterpret_cast<std::byte*>(ids.data()), kDType<I>, {},
                                   id_shape, id_strides)),
            mirror(strided<ConstTensorView>(padded.data(), vocab, width, table_stride)));
  mirror.back();
  EXPECT_TRUE(y.guards_intact());
  const std::vector<double> values = to_double(table);
  for (int64_t t = 0; t < tokens; ++t) {
    const auto want = ref::embedding(values, width, int64_t{ids[size_t(t * id_stride)]});
    for (int64_t i = 0; i < width; ++i) {
      ASSERT_EQ(double{to_float(y[size_t(t * y_stride + i)])}, want[size_t(i)]) << width;
    }
    for (int64_t i = width; i < y_stride; ++i) ASSERT_TRUE(y.untouched(size_t(t * y_stride + i)));
  }
}

template <class Case>
void expect_embedding(const ExecContext& ctx, Mirror& mirror) {
  for (const int64_t width : {1, 2, 7, 15, 16, 17, 33, 576, 2056}) {
    expect_embedding<Case>(ctx, mirror, width, 3, 2);
    expect_embedding<Case>(ctx, mirror, width, 8, 16);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace heddle::testing
