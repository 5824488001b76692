#include "cuda_test.h"

#include "device_mirror.h"
#include "ops/linear/test/packed_embedding_test_body.h"
#include "ops/linear/unpack/unpack_kernels.h"

namespace heddle::testing {
namespace {

class PackedEmbeddingCuda : public CudaTest {};

TEST_F(PackedEmbeddingCuda, GivesTheStoredRowsOrZeros) {
  for (const auto guards : {DeviceMirror::Guards::kBoth, DeviceMirror::Guards::kFlush}) {
    DeviceMirror mirror(guards);
    expect_packed_embedding(cuda_context(), mirror);
  }
}

class DequantizeRowsCuda : public CudaTest {};

TEST_F(DequantizeRowsCuda, GivesTheRowsOfARange) {
  DeviceMirror mirror(DeviceMirror::Guards::kFlush);
  for (const WeightType type : kAllWeightTypes) {
    const int64_t out = random_int(20, 70), in = 3 * block_size(type);
    const int64_t first = random_int(0, out - 1), num = random_int(1, out - first);
    const auto stored = random_stored(type, out * in, rng());
    const OwnedWeight weight(ExecContext{}, type, out, in, stored);
    PoisonedBuffer<bfloat16> y(size_t(num * in));
    PackedWeight there = weight.view();
    there.data = mirror(weight.bytes());
    cuda::linear::dequantize_rows(cuda_context(), mirror(y.view({num, in})), there, first);
    mirror.back();
    for (int64_t i = 0; i < num * in; ++i) {
      const auto want = from_float<bfloat16>(ref::weight(type, stored.data(), first * in + i));
      ASSERT_EQ(std::bit_cast<uint16_t>(y[size_t(i)]), std::bit_cast<uint16_t>(want)) << type;
    }
  }
}

}  // namespace
}  // namespace heddle::testing
