#include "cuda_test.h"

#include "heddle/core/cuda_context.h"

#include "device_buffer.h"
#include "device_mirror.h"
#include "expect_error.h"
#include "graph_timing_cuda.h"
#include "late_copy.h"
#include "ops/embedding/test/embedding_test_body.h"
#include "scoped_validation.h"

namespace heddle::testing {
namespace {

template <class Case>
class EmbeddingCuda : public CudaTest {};
TYPED_TEST_SUITE(EmbeddingCuda, EmbeddingTypes);

TYPED_TEST(EmbeddingCuda, EqualsTheTable) {
  for (const auto guards : {DeviceMirror::Guards::kBoth, DeviceMirror::Guards::kFlush}) {
    DeviceMirror mirror(guards);
    expect_embedding<TypeParam>(this->cuda_context(), mirror);
    if (this->HasFatalFailure()) return;
  }
}

class EmbeddingCudaCalls : public CudaTest {};

TEST_F(EmbeddingCudaCalls, ATokenOutsideTheTableIsAFault) {
  const DeviceStream stream;
  CudaContext context(Device{DeviceType::kCuda, 0}, stream.get(), 0);
  const DeviceBuffer<float> table(std::vector<float>(8, 1.0f));
  const DeviceBuffer<int32_t> ids(std::vector<int32_t>{1, 2});
  const DeviceBuffer<float> y(8);
  const auto call = [&] {
    embedding(context.exec(), y.view({2, 4}), ids.view({2}), table.view({2, 4}));
  };
  call();
  stream.wait();
  EXPECT_EQ(y.download(), (std::vector<float>{1, 1, 1, 1, 0, 0, 0, 0}));
  EXPECT_NE(message_of([&] { context.check(); }).find("token_ids"), std::string::npos);
  const ScopedValidation on;
  EXPECT_EQ(message_of(call), "token_ids[1] is 2, expected below vocab_size = 2");
}

TEST_F(EmbeddingCudaCalls, ReplaysSeeWhatTheKernelInFrontWritesLast) {
  const DeviceStream stream;
  constexpr int64_t kVocab = 50, kWidth = 64, kTokens = 9;
  const auto values = random_normal<bfloat16>(size_t(kVocab * kWidth));
  const DeviceBuffer<bfloat16> table(values), y(size_t(kTokens * kWidth));
  const DeviceBuffer<int32_t> ids(size_t{kTokens});
  DeviceBuffer<int32_t> late_ids(size_t{kTokens});
  const RecordedGraph graph(stream.get(), [&] {
    const std::array late{LateCopy{ids.data(), late_ids.data(), kTokens * sizeof(int32_t)}};
    copy_late(late, stream.get());
    embedding(cuda_context(stream.get()), y.view({kTokens, kWidth}), ids.view({kTokens}),
              table.view({kVocab, kWidth}));
  });
  for (int replay = 0; replay < 3; ++replay) {
    std::vector<int32_t> tokens;
    for (int64_t t = 0; t < kTokens; ++t) {
      tokens.push_back(static_cast<int32_t>(random_int(0, kVocab - 1)));
    }
    late_ids.upload(tokens);
    graph.launch(stream.get());
    stream.wait();
    const auto got = y.download();
    for (int64_t i = 0; i < kTokens * kWidth; ++i) {
      const int64_t at = tokens[size_t(i / kWidth)] * kWidth + i % kWidth;
      ASSERT_EQ(to_float(got[size_t(i)]), to_float(values[size_t(at)]));
    }
  }
}

}  // namespace
}  // namespace heddle::testing
