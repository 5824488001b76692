#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

// The definitions, entry by entry, on values in their logical order. Every backend is tested
// against this.

namespace heddle::ref {

using Vector = std::vector<int64_t>;

struct Matrix {
  int64_t rows = 0, width = 0;
  Vector values;  // [rows, width]

  [[nodiscard]] int64_t& at(int64_t i, int64_t j) { return values[size_t(i * width + j)]; }
  [[nodiscard]] int64_t at(int64_t i, int64_t j) const { return values[size_t(i * width + j)]; }
};

inline bool has(const Vector& v, int64_t i) { return i >= 0 && i < int64_t(v.size()); }
inline int64_t length(int64_t x) { return std::max<int64_t>(0, x); }
inline void fill(Vector& v, const std::optional<int64_t>& value) {
  if (value) std::fill(v.begin(), v.end(), *value);
}

inline void block_tables_to_ragged(Vector& ragged, const Matrix& block_tables, const Vector& input,
                                   const Vector& cache, std::optional<int64_t> fill_value) {
  fill(ragged, fill_value);
  int64_t start = 0;
  for (int64_t i = 0; i < block_tables.rows; ++i) {
    const int64_t n = length(input[size_t(i)] + cache[size_t(i)]);
    for (int64_t j = 0; j < n; ++j) {
      if (j < block_tables.width && has(ragged, start + j)) {
        ragged[size_t(start + j)] = block_tables.at(i, j);
      }
    }
    start += n;
  }
}

inline void block_tables_to_padded(Matrix& block_tables, const Vector& ragged, const Vector& cu,
                                   std::optional<int64_t> fill_value) {
  fill(block_tables.values, fill_value);
  for (int64_t i = 0; i < block_tables.rows; ++i) {
    for (int64_t j = 0; j < cu[size_t(i + 1)] - cu[size_t(i)]; ++j) {
      const int64_t from = cu[size_t(i)] + j;
      if (j < block_tables.width && has(ragged, from)) block_tables.at(i, j) = ragged[size_t(from)];
    }
  }
}

inline void copy_next_input_ids_inplace(Matrix& all_ids, const Vector& next_ids, const Vector& cu,
                                        const Vector& cache, const Vector& input,
                                        const Vector& prompt) {
  for (int64_t i = 0; i < all_ids.rows; ++i) {
    for (int64_t j = 0; j < cu[size_t(i + 1)] - cu[size_t(i)]; ++j) {
      const int64_t position = cache[size_t(i)] + input[size_t(i)] + j, from = cu[size_t(i)] + j;
      if (position < prompt[size_t(i)] || position < 0 || position >= all_ids.width) continue;
      if (has(next_ids, from)) all_ids.at(i, position) = next_ids[size_t(from)];
    }
  }
}

inline void prepare_position_slot_ids(Vector& positions, Vector& slots, const Vector& cache,
                                      const Vector& cu, const Vector& cu_slots) {
  for (size_t i = 0; i < cache.size(); ++i) {
    for (int64_t j = 0; j < cu[i + 1] - cu[i]; ++j) {
      if (has(positions, cu[i] + j)) positions[size_t(cu[i] + j)] = cache[i] + j;
      if (has(slots, cu[i] + j)) slots[size_t(cu[i] + j)] = cu_slots[i] + cache[i] + j;
    }
  }
}

inline void slots_filtering(Vector& filtered, const Vector& slots, const Vector& cu,
                            const Vector& slots_start, std::optional<int64_t> fill_value) {
  fill(filtered, fill_value);
  for (size_t i = 0; i < slots_start.size(); ++i) {
    for (int64_t j = 0; j < cu[i + 1] - cu[i]; ++j) {
      if (has(filtered, cu[i] + j) && has(slots, slots_start[i] + j)) {
        filtered[size_t(cu[i] + j)] = slots[size_t(slots_start[i] + j)];
      }
    }
  }
}

}  // namespace heddle::ref
