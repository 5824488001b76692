#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/linear_site.h"

#include "ops/linear_site/test/linear_site_test_body.h"

// The bodies of the tests of batches with pairs, the same for every device.

namespace heddle::testing {

/// Each row of the site has `fewest` to `most` pairs, the first at least one.
template <class T>
void draw_pairs(HostSite<T>& site, int64_t fewest, int64_t most) {
  site.pairs.clear();
  for (int64_t row = 0; row < site.shape.rows; ++row) {
    auto& of_row = site.pairs.emplace_back();
    for (int64_t i = random_int(row == 0 ? 1 : fewest, most); i > 0; --i) {
      const int64_t slot = random_int(-1, HostSite<T>::kNumSlots);
      of_row.push_back({static_cast<int>(slot), random_normal<float>(1)[0]});
    }
  }
}

/// linear_site of all rows with the site's pairs.
template <class T>
void run_pairs(HostSite<T>& site, const LoraRun& run, LinearPath path) {
  std::vector<int32_t> starts{0}, slots;
  std::vector<float> scales;
  size_t most = 0;
  for (const auto& of_row : site.pairs) {
    for (const SitePair& pair : of_row) {
      slots.push_back(pair.slot);
      scales.push_back(pair.scale);
    }
    starts.push_back(static_cast<int32_t>(slots.size()));
    most = std::max(most, of_row.size());
  }
  const int64_t rows = site.shape.rows, num_pairs = std::ssize(slots);
  const LoraBatch pairs = LoraBatch::from_pairs(
      host_view(starts.data(), {rows + 1}), host_view(slots.data(), {num_pairs}),
      host_view(scales.data(), {num_pairs}), static_cast<int64_t>(most));
  site.run(run, 0, rows,
           [&](const ExecContext& /*ctx*/, const auto& slices, const ConstTensorView& x,
               const LinearAdapters* adapters) {
             LinearAdapters given = *adapters;
             given.batch = run.batch(pairs, rows, HostSite<T>::kNumSlots, site.shape.max_rank);
             Workspace workspace(run.mirror.scratch(linear_site_workspace_bytes(
                 run.ctx.device, rows, site.shape.in, site.width, static_cast<int>(slices.size()),
                 site.shape.max_rank, static_cast<int64_t>(most))));
             linear_site(run.with(workspace), slices, x, path, &given);
           });
}

template <class T>
void expect_pairs_add_all_adapters(const SiteShape& shape, const LoraRun& run, LinearPath path) {
  HostSite<T> site(shape);
  draw_pairs(site, 0, 3);
  run_pairs(site, run, path);
  site.expect_right();
}

/// run_ids(site): of all rows.
template <class T, class RunIds>
void expect_one_pair_has_the_bits_of_an_id(const SiteShape& shape, const LoraRun& run,
                                           LinearPath path, const RunIds& run_ids) {
  HostSite<T> site(shape);
  draw_pairs(site, 1, 1);
  run_pairs(site, run, path);
  ASSERT_FALSE(site.has_nan());
  const HostSite<T> by_pairs = site;
  std::vector<int> slots;
  std::vector<float> scales;
  for (const auto& of_row : std::exchange(site.pairs, {})) {
    slots.push_back(of_row[0].slot < HostSite<T>::kNumSlots ? of_row[0].slot : -1);
    scales.push_back(of_row[0].scale);
  }
  site.set_batch(slots, scales);
  site.clear();
  run_ids(site);
  for (int64_t row = 0; row < shape.rows; ++row) {
    ASSERT_EQ(site.bits(row), by_pairs.bits(row)) << "row " << row;
  }
}

}  // namespace heddle::testing
