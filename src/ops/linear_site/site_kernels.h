#pragma once

#include <span>

#include "heddle/ops/linear_site.h"

namespace heddle {

namespace cpu::linear_site {
/// Arguments are checked.
void run(const ExecContext& ctx, std::span<const LinearSlice> slices, const ConstTensorView& x,
         const LinearAdapters* adapters);
[[nodiscard]] size_t workspace_bytes(int64_t num_tokens, int64_t in_features, int64_t out_features,
                                     int num_slices);
}  // namespace cpu::linear_site

namespace cuda::linear_site {
/// What tests set.
struct Options {
  // Adapters in the launch of the products, or in those of A x and B h around it.
  bool allows_inside = true;
  bool* is_inside = nullptr;  // set to whether they were
};
void run(const ExecContext& ctx, std::span<const LinearSlice> slices, const ConstTensorView& x,
         LinearPath path, const LinearAdapters* adapters, const Options& options = {});
[[nodiscard]] size_t workspace_bytes(int64_t num_tokens, int64_t in_features, int64_t out_features,
                                     int num_slices, int max_rank);
}  // namespace cuda::linear_site

}  // namespace heddle
