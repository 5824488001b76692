// rms_norm and fused_add_rms_norm on a GPU: the bodies of the CPU's tests, rows of every form, and
// graphs.
#include <algorithm>
#include <vector>

#include "cuda_test.h"
#include <gtest/gtest.h>

#include "device_buffer.h"
#include "device_mirror.h"
#include "ops/norm/test/rms_norm_test_body.h"
#include "small_sizes.h"
#include "testing/graph_timing_cuda.h"

namespace heddle::testing {
namespace {

template <class Pair>
class RmsNormCuda : public CudaTest {
 protected:
  using T = typename Pair::Element;
  using W = typename Pair::Weight;

  /// body(ctx, mirror, width) for widths around those at which the kernels and the lanes of a row
  /// change.
  template <class Body>
  void for_each_width(const Body& body) {
    std::vector<int64_t> widths{7, 64, 96, 256, 1000, 1025, 1032, 4104, 16400};  // a kernel each
    if (!small_sizes()) {
      widths.insert(widths.end(), {1, 8, 63, 65, 128, 129, 192, 257, 1024, 1536, 2049, 4096, 5120});
      widths.insert(widths.end(), {8192, 8193, 16384, 16385, 65536 + random_int(0, 9), 262144});
    }
    for (const int64_t width : widths) {
      SCOPED_TRACE(width);
      DeviceMirror on(random_int(0, 1) == 0 ? DeviceMirror::Guards::kBoth
                                            : DeviceMirror::Guards::kFlush);
      body(this->cuda_context(), on, width);
      if (this->HasFatalFailure()) return;
    }
  }
};
TYPED_TEST_SUITE(RmsNormCuda, AllNormTypes);

TYPED_TEST(RmsNormCuda, EqualsTheDefinition) {
  this->for_each_width([](const ExecContext& ctx, Mirror& on, int64_t width) {
    for (int round = 0; round < (width > 5000 ? 1 : small_or(1, 3)); ++round) {
      expect_definition<typename TestFixture::T, typename TestFixture::W>(ctx, on, width);
    }
  });
}

TYPED_TEST(RmsNormCuda, FusedAddNormalisesTheRoundedResidual) {
  this->for_each_width([](const ExecContext& ctx, Mirror& on, int64_t width) {
    expect_fused_add_normalises_the_rounded_residual<typename TestFixture::T,
                                                     typename TestFixture::W>(ctx, on, width);
  });
}

TYPED_TEST(RmsNormCuda, Fp8IsTheRoundingOfTheF32Value) {
  this->for_each_width([](const ExecContext& ctx, Mirror& on, int64_t width) {
    for (int round = 0; round < (width > 5000 ? 1 : small_or(1, 4)); ++round) {
      expect_fp8_is_the_rounding_of_the_f32_value<typename TestFixture::T, typename TestFixture::W>(
          ctx, on, width);
    }
  });
}

class RmsNormCudaOfF32 : public RmsNormCuda<NormTypes<float, float>> {};

TEST_F(RmsNormCudaOfF32, MayHaveAnOutputInF16OrBf16) {
  for_each_width([](const ExecContext& ctx, Mirror& on, int64_t width) {
    expect_narrow_output_is_rounded_once<half>(ctx, on, width);
    expect_narrow_output_is_rounded_once<bfloat16>(ctx, on, width);
  });
}

TYPED_TEST(RmsNormCuda, BitsDependOnTheRowAlone) {
  this->for_each_width([](const ExecContext& ctx, Mirror& on, int64_t width) {
    const int64_t rows = width > 2000 ? 4 : small_or(5, 70);
    expect_bits_of_a_row_alone<typename TestFixture::T, typename TestFixture::W>(ctx, on, rows,
                                                                                 width);
  });
}

class RmsNormCudaShapes : public CudaTest {};

TEST_F(RmsNormCudaShapes, OuterAxesMayHaveAnyRankAndStrides) {
  DeviceMirror on;
  expect_any_rank_and_strides(cuda_context(), on);
}

TEST_F(RmsNormCudaShapes, EmptyTensorsAreANoOp) {
  DeviceMirror on;
  expect_empty_tensors_are_a_no_op(cuda_context(), on);
}

TEST_F(RmsNormCudaShapes, NanStaysInItsRow) {
  DeviceMirror on;
  expect_nan_stays_in_its_row(cuda_context(), on);
}

TEST_F(RmsNormCudaShapes, Fp8OfZerosAndNan) {
  DeviceMirror on;
  expect_fp8_of_zeros_and_nan(cuda_context(), on);
}

TEST_F(RmsNormCudaShapes, MoreThan65535Rows) {
  // Few different rows, so that the answer is soon known.
  const int64_t num_rows = small_or(700, 70000), num_different = 7;
  for (const int64_t width : {64, 300, 1032}) {
    const NormProblem<half, half> p(num_different, width);
    std::vector<half> input(size_t(num_rows * width));
    for (int64_t r = 0; r < num_rows; ++r) {
      std::copy_n(p.input.begin() + r % num_different * width, width, input.begin() + r * width);
    }
    const DeviceBuffer<half> x(input), y(input.size()), weight(p.weight);
    rms_norm(cuda_context(), y.view({num_rows, width}), x.view({num_rows, width}),
             weight.view({width}), p.options);
    const std::vector<half> got = y.download(), first = p.rows_of(got, 0, num_different);
    expect_close(first, p.expected(p.input), width);
    for (int64_t r = 0; r + num_different <= num_rows; r += num_different) {
      ASSERT_TRUE(same_bits<half>(p.rows_of(got, r, num_different), first)) << "row " << r;
    }
    EXPECT_TRUE(y.guards_intact());
  }
}

TEST_F(RmsNormCudaShapes, AReplaySeesValuesThatChangedInPlace) {
  const DeviceStream stream;
  const ExecContext ctx = cuda_context(stream.get());
  for (const int64_t width : {128, 640, 4096, 40000}) {
    const int64_t rows = 3;
    const auto count = size_t(rows * width);
    DeviceBuffer<bfloat16> x(random_normal<bfloat16>(count)), residual(count);
    const DeviceBuffer<bfloat16> weight(random_normal<bfloat16>(size_t(width)));
    const DeviceBuffer<float8_e4m3> y(count), want(count);
    const DeviceBuffer<float> scales{size_t(rows)}, want_scales{size_t(rows)};
    const auto call = [&](const ExecContext& c, const DeviceBuffer<float8_e4m3>& to,
                          const DeviceBuffer<float>& row_scales) {
      RmsNormOptions options;
      options.output_scale.per_row = row_scales.view({rows});
      fused_add_rms_norm(c, to.view({rows, width}), residual.view({rows, width}),
                         x.view({rows, width}), weight.view({width}), options);
    };
    call(ctx, y, scales);  // loads the kernel
    stream.wait();
    const RecordedGraph graph(stream.get(), [&] { call(ctx, y, scales); });
    for (int round = 0; round < 3; ++round) {
      x.upload(random_normal<bfloat16>(count));
      const auto start = random_normal<bfloat16>(count);
      residual.upload(start);
      call(cuda_context(), want, want_scales);
      const auto want_residual = residual.download();
      residual.upload(start);
      graph.launch(stream.get());
      stream.wait();
      EXPECT_TRUE(same_bits<float8_e4m3>(y.download(), want.download()));
      EXPECT_TRUE(same_bits<float>(scales.download(), want_scales.download()));
      EXPECT_TRUE(same_bits<bfloat16>(residual.download(), want_residual));
    }
    EXPECT_TRUE(y.guards_intact() && scales.guards_intact() && residual.guards_intact());
  }
}

}  // namespace
}  // namespace heddle::testing
