#pragma once

#include "heddle/ops/linear_site.h"

#include "ops/linear_site/site_kernels.h"

namespace heddle::testing {

/// A call as linear_site makes it on a GPU, with what tests set.
[[nodiscard]] inline auto with_options(LinearPath path, const cuda::linear_site::Options& options) {
  return [=](const ExecContext& ctx, const auto& slices, const ConstTensorView& x,
             const LinearAdapters* adapters) {
    cuda::linear_site::run(ctx, slices, x, path, adapters, options);
  };
}
/// The same for a site that is_regular, whose tables then say so.
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

}  // namespace heddle::testing
