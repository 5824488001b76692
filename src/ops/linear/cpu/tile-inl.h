// The product loops, for files that Highway compiles once per target. Lanes are outputs and every
// (row, output) pair is one chain of multiply-adds over ascending k, so neither the tile that
// computes it nor the vector width changes its bits. Include inside such a file, after
// hwy/highway.h.

#if defined(HEDDLE_LINEAR_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_LINEAR_TILE_INL_H_
#undef HEDDLE_LINEAR_TILE_INL_H_
#else
#define HEDDLE_LINEAR_TILE_INL_H_
#endif

#include <type_traits>
#include <utility>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "core/math.h"
#include "ops/linear/cpu/column-inl.h"
#include "ops/linear/cpu/linear_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::linear::HWY_NAMESPACE {

// Groups that one pass over the weights takes: enough chains to hide the latency of the
// multiply-add for one row, and what leaves the most accumulators in registers for several.
constexpr int kRowGroups = kLanes == 16 ? 4 : kLanes == 8 ? 2 : 1;
constexpr int kTileGroups = kLanes == 16 ? 2 : 1;
// Up to this many rows the weights are decoded in registers, for more through a panel in memory.
constexpr int kMaxDirectRows = kLanes == 16 ? 8 : 4;
using DirectRows = std::conditional_t<kLanes == 16, std::integer_sequence<int, 1, 2, 3, 4, 6, 8>,
                                      std::integer_sequence<int, 1, 2, 3, 4>>;
// Rows of a panel's tile: as many accumulators as the registers hold.
constexpr int kPanelRows = kLanes == 16 ? 12 : kLanes == 8 ? 6 : 2;
constexpr int kPanelWeights = 128;  // of one output: 16 KB with AVX-512

HWY_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/// Stores the outputs of one vector that exist: those from `output` on, of num_outputs.
HWY_INLINE void store_outputs(Vec v, float* y, int64_t output, int64_t num_outputs) {
  const int64_t n = num_outputs - output;
  if (n >= kLanes) {
    hn::StoreU(v, F32(), y + output);
  } else if (n > 0) {
    store_f32_n(F32(), v, y + output, static_cast<size_t>(n));
  }
}
HWY_INLINE Vec load_outputs(const float* y, int64_t output, int64_t num_outputs) {
  const int64_t n = num_outputs - output;
  if (n >= kLanes) return hn::LoadU(F32(), y + output);
  return n > 0 ? load_f32_n(F32(), y + output, static_cast<size_t>(n)) : hn::Zero(F32());
}

/// Asks for the block that the next pass over the weights has where this one has `block`: far
/// enough ahead for memory to answer in time, and each line once. Past the last group it asks for
/// what lies there, which does no harm. One row of SmolLM2-135M, one thread: 10.2 ms without, 9.3
/// with 512 bytes ahead, 7.5 so.
HWY_INLINE void prefetch_block(const uint8_t* block, int64_t distance, int block_bytes) {
  const auto* next =
      reinterpret_cast<const uint8_t*>(reinterpret_cast<uintptr_t>(block) + distance);
  for (int line = 0; line < block_bytes; line += 64) hwy::Prefetch(next + line);
}

/// Up to kRows rows times kGroups groups, weights decoded in registers. Rows and groups past the
/// end repeat the last one and are not stored.
template <WeightType kType, int kRows, int kGroups>
struct DirectTile {
  static constexpr int kVecs = kGroups * kGroupVectors;
  using Weights = Column<kType>;

  Vec sum[kRows][kVecs];
  Weights column[is_dense(kType) ? 1 : kVecs];
  const float* x[kRows];
  const uint8_t* packed[kGroups];

  HWY_INLINE DirectTile(const LinearTask& t, int64_t group) {
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      x[r] = t.x + smaller(r, t.num_rows - 1) * t.x_stride;
      HWY_UNROLL(16)
      for (int v = 0; v < kVecs; ++v) sum[r][v] = hn::Zero(F32());
    }
    const int64_t last_group = (t.num_outputs - 1) / PackedLayout::kGroup;
    HWY_UNROLL(16)
    for (int g = 0; g < kGroups; ++g)
      packed[g] = t.packed + smaller(group + g, last_group) * t.group_stride;
  }

  HWY_INLINE void multiply_add(int64_t k, const Vec (&weight)[kVecs]) {
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      const auto xk = hn::Set(F32(), x[r][k]);
      HWY_UNROLL(16)
      for (int v = 0; v < kVecs; ++v) sum[r][v] = hn::MulAdd(weight[v], xk, sum[r][v]);
    }
  }

  template <int kWeight>
  HWY_INLINE void add_weight(int64_t k) {
    Vec weight[kVecs];
    HWY_UNROLL(16)
    for (int v = 0; v < kVecs; ++v) weight[v] = column[v].template weight<kWeight>();
    multiply_add(k + kWeight, weight);
  }
  template <int... kWeights>
  HWY_INLINE void add_weights(int64_t k, std::integer_sequence<int, kWeights...>) {
    (add_weight<kWeights>(k), ...);
  }

  HWY_INLINE void add_block(int64_t k) {
    for (int sub = 0; sub < Weights::kLayout.num_sub_blocks; ++sub) {
      HWY_UNROLL(16)
      for (int v = 0; v < kVecs; ++v)
        column[v].open(packed[v / kGroupVectors], sub, v % kGroupVectors * kLanes);
      for (int step = 0; step < Weights::kSteps; ++step, k += 8) {
        HWY_UNROLL(16)
        for (int v = 0; v < kVecs; ++v) column[v].load(step);
        add_weights(k, std::make_integer_sequence<int, 8>());
      }
    }
  }

  HWY_INLINE void add_dense(int64_t k) {
    Vec weight[kVecs];
    HWY_UNROLL(16)
    for (int v = 0; v < kVecs; ++v)
      weight[v] = dense_weight<kType>(packed[v / kGroupVectors], v % kGroupVectors * kLanes);
    multiply_add(k, weight);
  }

  HWY_INLINE void store(const LinearTask& t, int64_t group) const {
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      if (r >= t.num_rows) break;
      float* y = t.y + r * t.y_stride;
      HWY_UNROLL(16)
      for (int v = 0; v < kVecs; ++v) {
        store_outputs(sum[r][v], y, group * PackedLayout::kGroup + v * kLanes, t.num_outputs);
      }
    }
  }
};

template <WeightType kType, int kRows, int kGroups>
HWY_NOINLINE void direct_tile(const LinearTask& t, int64_t group) {
  constexpr int kBlock = block_format(kType).block_size;
  constexpr int kBlockBytes = PackedLayout(kType).block_bytes;
  DirectTile<kType, kRows, kGroups> tile(t, group);
  for (int64_t k = 0; k < t.in_features; k += kBlock) {
    HWY_UNROLL(4)
    for (int g = 0; g < kGroups; ++g)
      prefetch_block(tile.packed[g], kGroups * t.group_stride, kBlockBytes);
    if (t.ahead != nullptr) t.ahead->step();
    if constexpr (is_dense(kType)) {
      tile.add_dense(k);
    } else {
      tile.add_block(k);
    }
    HWY_UNROLL(4)
    for (int g = 0; g < kGroups; ++g) tile.packed[g] += kBlockBytes;
  }
  tile.store(t, group);
}

/// All rows of the task with the lowest tile of the list that holds them.
template <WeightType kType, int kRows, int... kMoreRows>
HWY_INLINE void direct_rows_by(const LinearTask& t,
                               std::integer_sequence<int, kRows, kMoreRows...>) {
  if constexpr (sizeof...(kMoreRows) > 0) {
    if (t.num_rows > kRows) {
      return direct_rows_by<kType>(t, std::integer_sequence<int, kMoreRows...>());
    }
  }
  constexpr int kGroups = kRows == 1 ? kRowGroups : kTileGroups;
  for (int64_t g = 0; g * PackedLayout::kGroup < t.num_outputs; g += kGroups) {
    direct_tile<kType, kRows, kGroups>(t, g);
  }
}

constexpr int kPanelVecs = kTileGroups * kGroupVectors;
constexpr int kPanelWidth = kPanelVecs * kLanes;

template <WeightType kType, int... kWeights>
HWY_INLINE void decode_weights(const Column<kType>& column, float* panel,
                               std::integer_sequence<int, kWeights...>) {
  (hn::Store(column.template weight<kWeights>(), F32(), panel + kWeights * kPanelWidth), ...);
}

/// panel [count, kLanes] with row stride kPanelWidth: the weights [k, k + count) of kLanes outputs
/// of a group.
template <WeightType kType>
HWY_INLINE void decode_column(const uint8_t* group, int lane, int64_t k, int64_t count,
                              int64_t prefetch_distance, float* panel) {
  constexpr BlockFormat kFormat = block_format(kType);
  constexpr PackedLayout kLayout(kType);
  if constexpr (is_dense(kType)) {
    for (int64_t i = 0; i < count; ++i) {
      hn::Store(dense_weight<kType>(group + (k + i) * kLayout.block_bytes, lane), F32(),
                panel + i * kPanelWidth);
    }
  } else {
    Column<kType> column;
    for (const int64_t end = k + count; k < end; k += kFormat.sub_block_size) {
      const auto sub = static_cast<int>(k % kFormat.block_size / kFormat.sub_block_size);
      const uint8_t* block = group + k / kFormat.block_size * kLayout.block_bytes;
      if (sub == 0 && lane == 0) prefetch_block(block, prefetch_distance, kLayout.block_bytes);
      column.open(block, sub, lane);
      for (int step = 0; step < Column<kType>::kSteps; ++step, panel += 8 * kPanelWidth) {
        column.load(step);
        decode_weights<kType>(column, panel, std::make_integer_sequence<int, 8>());
      }
    }
  }
}

template <WeightType kType>
HWY_NOINLINE void decode_panel(const LinearTask& t, int64_t group, int64_t k, int64_t count,
                               float* panel) {
  const int64_t last_group = (t.num_outputs - 1) / PackedLayout::kGroup;
  for (int v = 0; v < kPanelVecs; ++v) {
    const uint8_t* packed =
        t.packed + smaller(group + v / kGroupVectors, last_group) * t.group_stride;
    decode_column<kType>(packed, v % kGroupVectors * kLanes, k, count, kTileGroups * t.group_stride,
                         panel + v * kLanes);
  }
}

/// y += x panel for kRows rows; x [kRows, count], panel [count, kPanelWidth], y [kRows,
/// num_outputs]. The sums start from zero where `first`, else from y, which so carries each chain
/// from one panel to the next.
template <int kRows>
HWY_NOINLINE void panel_tile(const float* HWY_RESTRICT x, int64_t x_stride,
                             const float* HWY_RESTRICT panel, int64_t count, float* HWY_RESTRICT y,
                             int64_t y_stride, int64_t num_outputs, bool first) {
  Vec sum[kRows][kPanelVecs];
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(16)
    for (int v = 0; v < kPanelVecs; ++v) {
      sum[r][v] = first ? hn::Zero(F32()) : load_outputs(y + r * y_stride, v * kLanes, num_outputs);
    }
  }
  for (int64_t k = 0; k < count; ++k) {
    Vec weight[kPanelVecs];
    HWY_UNROLL(16)
    for (int v = 0; v < kPanelVecs; ++v)
      weight[v] = hn::Load(F32(), panel + k * kPanelWidth + v * kLanes);
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      const auto xk = hn::Set(F32(), x[r * x_stride + k]);
      HWY_UNROLL(16)
      for (int v = 0; v < kPanelVecs; ++v) sum[r][v] = hn::MulAdd(weight[v], xk, sum[r][v]);
    }
  }
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(16)
    for (int v = 0; v < kPanelVecs; ++v)
      store_outputs(sum[r][v], y + r * y_stride, v * kLanes, num_outputs);
  }
}

using PanelTile = void (*)(const float*, int64_t, const float*, int64_t, float*, int64_t, int64_t,
                           bool);

template <int... kRowsMinus1>
HWY_INLINE PanelTile panel_tile_for(int64_t rows, std::integer_sequence<int, kRowsMinus1...>) {
  static constexpr PanelTile kTiles[] = {&panel_tile<kRowsMinus1 + 1>...};
  return kTiles[rows - 1];
}

/// All rows of the task, panel by panel: a panel of weights is decoded once and used for all rows.
template <WeightType kType>
HWY_INLINE void panel_rows(const LinearTask& t) {
  alignas(64) float panel[kPanelWeights * kPanelWidth];
  const int64_t tiles = ceil_div(t.num_rows, kPanelRows);
  for (int64_t output = 0; output < t.num_outputs; output += kPanelWidth) {
    for (int64_t k = 0; k < t.in_features; k += kPanelWeights) {
      const int64_t count = smaller(kPanelWeights, t.in_features - k);
      if (t.ahead != nullptr) t.ahead->step();
      decode_panel<kType>(t, output / PackedLayout::kGroup, k, count, panel);
      for (int64_t tile = 0; tile < tiles; ++tile) {  // tiles of even heights
        const int64_t row = t.num_rows * tile / tiles, rows = t.num_rows * (tile + 1) / tiles - row;
        panel_tile_for(rows, std::make_integer_sequence<int, kPanelRows>())(
            t.x + row * t.x_stride + k, t.x_stride, panel, count, t.y + row * t.y_stride + output,
            t.y_stride, t.num_outputs - output, k == 0);
      }
    }
  }
}

template <WeightType kType>
HWY_NOINLINE void run_task(const LinearTask& t) {
  if (t.num_rows <= kMaxDirectRows) {
    direct_rows_by<kType>(t, DirectRows());
  } else {
    panel_rows<kType>(t);
  }
}

}  // namespace heddle::cpu::linear::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
