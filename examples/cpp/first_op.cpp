// The shape of every call: a context, outputs, inputs, options; views of memory that stays the
// caller's.
#include <cmath>
#include <cstdio>
#include <vector>

#include "heddle/config.h"
#include "heddle/core/error.h"
#include "heddle/core/thread_pool.h"
#include "heddle/ops/norm.h"

int main() {
  constexpr int kTokens = 4, kWidth = 64, kRowStride = 100;
  std::vector<float> x(kTokens * kRowStride, 3.0f), y(kTokens * kWidth);
  const std::vector<float> weight(kWidth, 0.5f);

  heddle::ThreadPool threads(2);
  heddle::ExecContext ctx;  // the CPU
  ctx.threads = &threads;

  // The input is the first 64 columns of wider rows: a view says so, nothing is copied.
  const heddle::TensorView wide = heddle::host_view(x.data(), {kTokens, kRowStride});
  const heddle::TensorView out = heddle::host_view(y.data(), {kTokens, kWidth});
  const heddle::ConstTensorView w = heddle::host_view(weight.data(), {kWidth});
  heddle::rms_norm(ctx, out, wide.narrow(1, 0, kWidth), w, {.epsilon = 0.0f});
  std::printf("heddle %s: %g\n", heddle::kVersion, static_cast<double>(y[0]));
  if (!(std::abs(y[kTokens * kWidth - 1] - 0.5f) < 1e-6f)) return 1;

  try {
    heddle::rms_norm(ctx, out, wide, w);
  } catch (const heddle::Error& error) {  // names the tensor, the axis and both values
    std::printf("a wrong call: %s\n", error.what());
    return 0;
  }
  return 1;
}
