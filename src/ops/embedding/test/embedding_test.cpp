#include "heddle/ops/embedding.h"

#include <array>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "isa.h"
#include "ops/embedding/test/embedding_ref.h"
#include "poison.h"
#include "random.h"
#include "scoped_validation.h"

namespace heddle {
namespace {

using testing::message_of;

template <class Table, class Output, class Id>
struct Types {
  using T = Table;
  using Y = Output;
  using I = Id;
};

template <class Case>
class Embedding : public ::testing::Test {};
using AllTypes = ::testing::Types<Types<float, float, int32_t>, Types<half, float, int64_t>,
                                  Types<half, half, int32_t>, Types<bfloat16, float, int32_t>,
                                  Types<bfloat16, bfloat16, int64_t>, Types<half, float, int32_t>>;
TYPED_TEST_SUITE(Embedding, AllTypes);

template <class View, class T>
View strided(T* data, int64_t rows, int64_t width, int64_t stride) {
  const std::array<int64_t, 2> shape{rows, width}, strides{stride, 1};
  using Byte = std::remove_pointer_t<decltype(View().raw())>;
  return View(reinterpret_cast<Byte*>(data), kDType<std::remove_const_t<T>>, {}, shape, strides);
}

TYPED_TEST(Embedding, EqualsTheTableOnEveryTarget) {
  using T = typename TypeParam::T;
  using Y = typename TypeParam::Y;
  using I = typename TypeParam::I;
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    for (const int64_t width : {1, 2, 7, 15, 16, 17, 33, 576}) {
      const int64_t vocab = testing::random_int(1, 40), tokens = testing::random_int(1, 90);
      const int64_t table_stride = width + 3, y_stride = width + 2, id_stride = 2;
      auto table = testing::random_normal<T>(size_t(vocab * width), 1e-3f);  // f16: subnormals, too
      table[0] = from_float<T>(std::numeric_limits<float>::infinity());
      testing::PoisonedBuffer<T> padded(size_t(vocab * table_stride));
      for (int64_t i = 0; i < vocab * width; ++i) {
        padded[size_t(i / width * table_stride + i % width)] = table[size_t(i)];
      }
      testing::PoisonedBuffer<I> ids(size_t(tokens * id_stride));
      for (int64_t t = 0; t < tokens; ++t) {  // about one in ten outside the table
        const int64_t id = testing::random_int(-2, vocab + 1);
        const I far = testing::pick({std::numeric_limits<I>::min(), std::numeric_limits<I>::max()});
        ids[size_t(t * id_stride)] = id == -2 ? far : static_cast<I>(id);
      }
      testing::PoisonedBuffer<Y> y(size_t(tokens * y_stride));
      const std::array<int64_t, 1> id_shape{tokens}, id_strides{id_stride};
      ThreadPool pool(static_cast<int>(testing::random_int(1, 3)));
      ExecContext ctx;
      ctx.threads = &pool;
      embedding(ctx, strided<TensorView>(y.data(), tokens, width, y_stride),
                {reinterpret_cast<std::byte*>(ids.data()), kDType<I>, {}, id_shape, id_strides},
                strided<ConstTensorView>(padded.data(), vocab, width, table_stride));
      EXPECT_TRUE(y.guards_intact());
      const std::vector<double> values = testing::to_double(table);
      for (int64_t t = 0; t < tokens; ++t) {
        const auto want = ref::embedding(values, width, int64_t{ids[size_t(t * id_stride)]});
        for (int64_t i = 0; i < width; ++i) {
          ASSERT_EQ(double{to_float(y[size_t(t * y_stride + i)])}, want[size_t(i)]);
        }
        for (int64_t i = width; i < y_stride; ++i) {
          ASSERT_TRUE(y.untouched(size_t(t * y_stride + i)));
        }
      }
    }
  }
}

TEST(EmbeddingShapes, ManyRowsAreSharedAmongThreads) {
  const int64_t vocab = 50, width = 300, tokens = 4000;
  const auto table = testing::random_normal<half>(size_t(vocab * width));
  std::vector<int32_t> ids(size_t{tokens});
  for (int32_t& id : ids) id = static_cast<int32_t>(testing::random_int(0, vocab - 1));
  std::vector<float> alone(size_t(tokens * width)), shared(alone.size());
  const auto run = [&](const ExecContext& ctx, std::vector<float>& y) {
    embedding(ctx, host_view(y.data(), {tokens, width}), host_view(ids.data(), {tokens}),
              host_view(table.data(), {vocab, width}));
  };
  ThreadPool pool(3);
  ExecContext ctx;
  ctx.threads = &pool;
  run({}, alone);
  run(ctx, shared);
  EXPECT_EQ(alone, shared);
}

TEST(EmbeddingShapes, EmptyTensors) {
  testing::PoisonedBuffer<float> y(4);
  const std::vector<float> table(8, 1.0f);
  const std::vector<int32_t> ids{0};
  embedding({}, y.view({0, 4}), host_view(ids.data(), {0}), host_view(table.data(), {2, 4}));
  embedding({}, y.view({1, 0}), host_view(ids.data(), {1}), host_view(table.data(), {2, 0}));
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(y.untouched(i));
  embedding({}, y.view({1, 4}), host_view(ids.data(), {1}), host_view(table.data(), {0, 4}));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(y[i], 0.0f);  // no table has that token
}

TEST(EmbeddingErrors, NameTensorAxisAndBothValues) {
  std::vector<float> y(12), table(12);
  std::vector<half> halves(12);
  std::vector<int32_t> ids(3);
  const auto run = [&](TensorView out, ConstTensorView tokens, ConstTensorView rows) {
    return message_of([&] { embedding({}, out, tokens, rows); });
  };
  const ConstTensorView tokens = host_view(ids.data(), {3});
  EXPECT_EQ(run(host_view(y.data(), {3, 4}), tokens, host_view(table.data(), {3, 4})), "no error");
  EXPECT_EQ(run(host_view(y.data(), {3, 3}), tokens, host_view(table.data(), {3, 4})),
            "y.size(1) is 3, expected width = 4");
  EXPECT_EQ(run(host_view(y.data(), {2, 4}), tokens, host_view(table.data(), {3, 4})),
            "y.size(0) is 2, expected num_tokens = 3");
  EXPECT_EQ(run(host_view(halves.data(), {3, 4}), tokens, host_view(table.data(), {3, 4})),
            "y is f16, expected f32 or the table's f32");
  EXPECT_EQ(
      run(host_view(y.data(), {3, 4}), host_view(y.data(), {3}), host_view(table.data(), {3, 4})),
      "token_ids is f32, supported: i32, i64");
  const std::array<int64_t, 2> shape{3, 4}, strides{1, 3};
  const ConstTensorView transposed(reinterpret_cast<const std::byte*>(table.data()),
                                   DType::kFloat32, {}, shape, strides);
  EXPECT_EQ(run(host_view(y.data(), {3, 4}), tokens, transposed),
            "table.stride(1) is 3, expected 1");
}

TEST(EmbeddingErrors, ValidationRefusesIdsOutsideTheVocabulary) {
  std::vector<float> y(12);
  const std::vector<float> table(12);
  std::vector<int32_t> ids{2, 0, 3};
  const auto run = [&] {
    return message_of([&] {
      embedding({}, host_view(y.data(), {3, 4}), host_view(ids.data(), {3}),
                host_view(table.data(), {3, 4}));
    });
  };
  EXPECT_EQ(run(), "no error");
  const testing::ScopedValidation on;
  EXPECT_EQ(run(), "token_ids[2] is 3, expected below vocab_size = 3");
  ids[2] = -1;
  EXPECT_EQ(run(), "token_ids[2] is -1, expected at least 0");
  ids[2] = 1;
  EXPECT_EQ(run(), "no error");
}

}  // namespace
}  // namespace heddle
