#pragma once

#include <array>
#include <cmath>
#include <vector>

#include "heddle/ops/lora.h"

#include "core/math.h"
#include "random.h"

namespace heddle::testing {

/// Elements between the end of a row and the next row; regular ones keep rows at multiples of 16
/// bytes where they begin there.
inline int64_t random_gap(bool is_regular) {
  return is_regular ? pick<int64_t>({0, 8}) : random_int(0, 4);
}

/// One half (A or B) of the adapters of one slice: w[outer][inner] in memory, with gaps of NaN
/// between the rows. Values are drawn as [rank][other] whatever the layout, so two layouts can hold
/// the same weights.
template <class T>
struct LoraHalf {
  LoraLayout layout;
  int64_t other;                       // in_features or out_features
  std::vector<int> ranks;              // of each slot; 0: the adapter does not touch the slice
  std::vector<std::vector<T>> values;  // of each slot [rank][other]
  std::vector<std::vector<T>> memory;  // of each slot, as laid out
  std::vector<LoraWeight> entries;

  LoraHalf(LoraLayout layout, int64_t other, const std::vector<int>& ranks, bool is_regular = false)
      : layout(layout), other(other), ranks(ranks) {
    for (const int rank : ranks) {
      values.push_back(random_normal<T>(size_t(rank * other)));
    }
    lay_out(layout, is_regular);
  }

  void lay_out(LoraLayout new_layout, bool is_regular = false) {
    layout = new_layout;
    memory.clear();
    entries.clear();
    for (size_t slot = 0; slot < ranks.size(); ++slot) {
      const int64_t rank = ranks[slot];
      const int64_t row = is_regular ? round_up(inner(rank), 8) : inner(rank);
      const int64_t stride = row + random_gap(is_regular);
      const int64_t outer = layout == LoraLayout::kRankMajor ? rank : other;
      // Ends with the last element: a read past it is one past the allocation.
      memory.emplace_back(size_t(rank == 0 ? 0 : (outer - 1) * stride + inner(rank)),
                          from_float<T>(NAN));
      for (int64_t r = 0; r < rank; ++r) {
        for (int64_t n = 0; n < other; ++n) {
          const int64_t at = layout == LoraLayout::kRankMajor ? r * stride + n : n * stride + r;
          memory.back()[size_t(at)] = values[slot][size_t(r * other + n)];
        }
      }
      entries.push_back({.data = rank == 0 ? nullptr : memory.back().data(),
                         .rank = static_cast<int32_t>(rank),
                         .scale = static_cast<float>(random_int(1, 7)) * 0.3f,
                         .row_stride = stride});
    }
  }
  [[nodiscard]] int64_t inner(int64_t rank) const {
    return layout == LoraLayout::kRankMajor ? other : rank;
  }
  [[nodiscard]] float value(int slot, int64_t r, int64_t n) const {
    return to_float(values[size_t(slot)][size_t(r * other + n)]);
  }
};

/// The entries of several halves, slice by slice, as one table.
template <class T>
struct LoraTableOf {
  std::vector<LoraWeight> entries;
  LoraTable table;

  explicit LoraTableOf(const std::vector<const LoraHalf<T>*>& slices) {
    const size_t num_slots = slices[0]->ranks.size();
    int max_rank = 1;
    for (size_t slot = 0; slot < num_slots; ++slot) {
      for (const LoraHalf<T>* slice : slices) {
        entries.push_back(slice->entries[slot]);
        max_rank = std::max(max_rank, slice->ranks[slot]);
      }
    }
    table = {.entries = entries.data(),
             .num_slots = static_cast<int32_t>(num_slots),
             .num_slices = static_cast<int32_t>(slices.size()),
             .max_rank = max_rank,
             .dtype = kDType<T>,
             .layout = slices[0]->layout};
  }
};

/// A batch of rows with random slots, some of them none or out of range, held as ids or as shuffled
/// segments.
struct RandomLoraBatch {
  std::vector<int> slots;  // resolved: -1 for none
  std::vector<float> scales;
  std::vector<int32_t> narrow;
  std::vector<int64_t> wide, starts, ends, segment_slots;
  LoraBatch batch;

  RandomLoraBatch(int64_t num_tokens, int num_slots, bool repeated) {
    std::vector<int64_t> ids(static_cast<size_t>(num_tokens));
    for (size_t t = 0; t < ids.size(); ++t) {
      const bool repeats = repeated && t > 0 && random_int(0, 9) > 0;
      ids[t] = repeats ? ids[t - 1] : random_int(-2, num_slots + 1);
    }
    for (const int64_t id : ids) {
      slots.push_back(id >= 0 && id < num_slots ? static_cast<int>(id) : -1);
    }
    const int64_t form = random_int(0, 2);
    if (form == 0) {
      narrow.assign(ids.begin(), ids.end());
      batch = LoraBatch::from_ids(host_view(narrow.data(), {num_tokens}));
    } else if (form == 1) {
      wide = ids;
      for (int64_t& id : wide) id = id < 0 ? int64_t{-5'000'000'000} : id;
      batch = LoraBatch::from_ids(host_view(wide.data(), {num_tokens}));
    } else {
      make_segments(ids);
    }
    if (random_int(0, 1) == 0) {
      scales = random_normal<float>(ids.size());
      batch.row_scale = host_view(scales.data(), {num_tokens});
    } else {
      scales.assign(ids.size(), 1.0f);
    }
  }

 private:
  /// Runs of equal ids in reverse order; those without an adapter are left out now and then, and
  /// empty ones lie between.
  void make_segments(const std::vector<int64_t>& ids) {
    const auto push = [&](int64_t start, int64_t end, int64_t slot) {
      starts.insert(starts.begin(), start);
      ends.insert(ends.begin(), end);
      segment_slots.insert(segment_slots.begin(), slot);
    };
    for (size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
      while (end < ids.size() && ids[end] == ids[begin]) ++end;
      if (ids[begin] >= 0 || random_int(0, 1) == 0) {
        push(static_cast<int64_t>(begin), static_cast<int64_t>(end), ids[begin]);
      }
      if (random_int(0, 2) == 0) push(7, 3, 0);
      if (random_int(0, 2) == 0) push(-1, -1, 0);
    }
    const auto n = static_cast<int64_t>(starts.size());
    batch = LoraBatch::from_segments(host_view(starts.data(), {n}), host_view(ends.data(), {n}),
                                     host_view(segment_slots.data(), {n}));
  }
};

}  // namespace heddle::testing
