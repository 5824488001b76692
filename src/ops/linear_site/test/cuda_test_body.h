#pragma once

#include "heddle/ops/linear_site.h"

#include "ops/linear_site/site_kernels.h"
#include "ops/linear_site/test/linear_site_test_body.h"

namespace heddle::testing {

/// A call as linear_site makes it on a GPU, of a site that is_regular, whose tables then say so,
/// with what tests set.
[[nodiscard]] inline auto with_vectors(LinearPath path, const cuda::linear_site::Options& options) {
  return [=](const ExecContext& ctx, const auto& slices, const ConstTensorView& x,
             const LinearAdapters* adapters) {
    if (adapters == nullptr) {
      return cuda::linear_site::run(ctx, slices, x, path, nullptr, options);
    }
    LinearAdapters aligned = *adapters;
    aligned.a.is_aligned = aligned.b.is_aligned = true;
    cuda::linear_site::run(ctx, slices, x, path, &aligned, options);
  };
}

/// The bits of `lora_apply` behind products in f32. On 9.0, the one chip with such kernels, the
/// adapters have been inside those of the products.
template <class T>
void expect_bits_of_lora_apply(HostSite<T>& site, const LoraRun& run, int64_t rows,
                               LinearPath path) {
  site.run(run, 0, rows, with_vectors(path, {.allows_inside = false}));
  const HostSite<T> apart = site;
  site.clear();
  bool is_inside = false;
  site.run(run, 0, rows, with_vectors(path, {.is_inside = &is_inside}));
  ASSERT_EQ(is_inside, run.ctx.info.compute_capability == 90);
  for (int64_t row = 0; row < rows; ++row) {
    ASSERT_EQ(site.bits(row), apart.bits(row)) << "row " << row;
  }
}

}  // namespace heddle::testing
