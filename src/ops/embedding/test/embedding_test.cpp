#include "heddle/ops/embedding.h"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "exec_context.h"
#include "expect_error.h"
#include "isa.h"
#include "ops/embedding/test/embedding_test_body.h"
#include "poison.h"
#include "random.h"
#include "scoped_validation.h"

namespace heddle {
namespace {

using testing::message_of;

template <class Case>
class Embedding : public ::testing::Test {};
TYPED_TEST_SUITE(Embedding, testing::EmbeddingTypes);

TYPED_TEST(Embedding, EqualsTheTableOnEveryTarget) {
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    ThreadPool pool(static_cast<int>(testing::random_int(1, 3)));
    testing::Mirror mirror;
    testing::expect_embedding<TypeParam>(testing::context_with(&pool), mirror);
    if (this->HasFatalFailure()) return;
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
