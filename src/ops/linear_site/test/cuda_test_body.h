#pragma once

#include <algorithm>
#include <initializer_list>

#include "heddle/ops/linear_site.h"

#include "ops/linear_site/call/site_kernels.h"
#include "ops/linear_site/decode/select_kernel.h"
#include "ops/linear_site/decode/shared_layout.h"
#include "ops/linear_site/test/linear_site_test_body.h"
#include "ops/lora_device/plan/plan_bytes.h"

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

/// The route of such a call of so many rows.
template <class T>
[[nodiscard]] SiteRoute route_of(const HostSite<T>& site, LinearPath path, int64_t rows,
                                 const DeviceInfo& info) {
  const auto is_dense = [](const auto& weight) { return weight == nullptr; };
  return select_site_route({.path = path,
                            .num_slices = static_cast<int>(site.packed.size()),
                            .rows = rows,
                            .in_features = site.shape.in,
                            .max_rank = site.shape.max_rank,
                            .has_packed = !std::ranges::all_of(site.packed, is_dense),
                            .has_vectors = true,
                            .has_kernels = true},
                           info);
}

/// Such a call of the rows [first, first + rows).
template <class T>
void run_aligned(HostSite<T>& site, const LoraRun& run, LinearPath path, int64_t first,
                 int64_t rows) {
  SiteRoute taken = SiteRoute::kApart;
  site.run(run, first, rows, with_vectors(path, {.taken = &taken}));
  if (site.shape.max_rank == 0) return;
  ASSERT_EQ(taken, route_of(site, path, rows, run.ctx.info));
}

/// The bits of `lora_apply` after products in f32, by the selected route and, of few rows, around
/// the products.
template <class T>
void expect_bits_of_lora_apply(HostSite<T>& site, const LoraRun& run, LinearPath path) {
  const int64_t rows = site.shape.rows;
  site.run(run, 0, rows, with_vectors(path, {.route = SiteRoute::kApart}));
  ASSERT_FALSE(site.has_nan());
  const HostSite<T> apart = site;
  const auto expect_same = [&](const char* route) {
    for (int64_t row = 0; row < rows; ++row) {
      ASSERT_EQ(site.bits(row), apart.bits(row)) << route << ", row " << row;
    }
  };
  site.clear();
  run_aligned(site, run, path, 0, rows);
  expect_same("selected");
  if (path == LinearPath::kPrompt || site.shape.outs.size() > size_t{kMaxLaunchSlices}) return;
  site.clear();
  site.run(run, 0, rows, with_vectors(path, {.route = SiteRoute::kAround}));
  expect_same("around");
}

/// In batches of these sizes, as far as the site has so many rows, each row has the bits that it
/// has in a batch of all.
template <class T>
void expect_bits_in_any_batch(HostSite<T>& site, const LoraRun& run, LinearPath path,
                              bool is_aligned, std::initializer_list<int64_t> sizes) {
  const auto run_rows = [&](int64_t first, int64_t rows) {
    site.clear();
    if (is_aligned) return run_aligned(site, run, path, first, rows);
    site.run(run, path, first, rows);
  };
  const int64_t all_rows = site.shape.rows;
  run_rows(0, all_rows);
  ASSERT_FALSE(site.has_nan());
  const HostSite<T> all = site;
  for (const int64_t rows : sizes) {
    if (rows > all_rows) continue;
    const int64_t first = random_int(0, all_rows - rows);
    run_rows(first, rows);
    for (int64_t row = first; row < first + rows; ++row) {
      ASSERT_EQ(site.bits(row), all.bits(row)) << rows << " rows, row " << row;
    }
  }
}

}  // namespace heddle::testing
