#include <type_traits>

#include "ops/lora_device/cpu/product_kernels.h"

// Highway compiles this file once per instruction set; the inner namespace keeps the copies apart.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/lora_device/cpu/product_cpu.cpp"
// The order of these includes matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/lora_device/cpu/tile-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::lora::HWY_NAMESPACE {

/// Depths of input that are widened at once when input is not f32.
constexpr int64_t kWidenedDepths = kMaxLoraRank;

/// Columns of an item that stream_columns takes: 8 KB of sums.
constexpr int64_t kStreamedColumns = 2048;

/// Columns of one row that a block takes at once.
constexpr int64_t kMaxBlockColumns = 8 * kLanes;

/// Vectors of sums that stay in registers with the weights; with 32 registers twice as many.
constexpr int kSums = HWY_TARGET <= HWY_AVX3 ? 16 : 8;

/// One work item: the rows of a tile times the columns [begin, end) of a slice.
template <class T>
struct Item {
  Weight<T> w;
  const LoraProduct* p;
  const LoraProductSlice* slice;
  int64_t begin, end;
  int num_rows;
  float factors[kTileRows];
  int64_t rows[kTileRows];
  const std::byte* input[kTileRows];
  // Widened depths [first_widened, end_widened) of input.
  int64_t first_widened = 0, end_widened = 0;
  HWY_ALIGN float widened[kTileRows][kWidenedDepths];
};

template <class U>
HWY_INLINE void widen_row(const U* from, int64_t n, float* HWY_RESTRICT to) {
  const D d;
  int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes) hn::StoreU(load_f32(d, from + k), d, to + k);
  if (k < n) store_f32_n(d, load_f32_n(d, from + k, size_t(n - k)), to + k, size_t(n - k));
}

template <class T>
void widen(Item<T>& item, int64_t k0, int64_t k1) {
  if (k0 == item.first_widened && k1 == item.end_widened) return;
  for (int row = 0; row < item.num_rows; ++row) {
    if (item.p->input_dtype == DType::kFloat16) {
      widen_row(reinterpret_cast<const half*>(item.input[row]) + k0, k1 - k0, item.widened[row]);
    } else {
      widen_row(reinterpret_cast<const bfloat16*>(item.input[row]) + k0, k1 - k0,
                item.widened[row]);
    }
  }
  item.first_widened = k0;
  item.end_widened = k1;
}

template <class Y, class T, int kVecs>
HWY_INLINE void finish(const Item<T>& item, int row, int64_t n, const Vec (&sums)[kVecs]) {
  Y* y = reinterpret_cast<Y*>(item.slice->y) + item.rows[row] * item.slice->y_stride + n;
  finish_row(y, sums, item.factors[row], item.p->accumulate, item.end - n);
}

template <class T, int kVecs>
HWY_INLINE void finish_typed(const Item<T>& item, int row, int64_t n, const Vec (&sums)[kVecs]) {
  switch (item.slice->y_dtype) {
    case DType::kFloat16: return finish<half>(item, row, n, sums);
    case DType::kBFloat16: return finish<bfloat16>(item, row, n, sums);
    default: return finish<float>(item, row, n, sums);
  }
}

/// kRows rows (those past num_rows repeat the last one and are dropped) times kVecs vectors of
/// columns from n on.
template <class T, int kRows, int kVecs, bool kIsByWidth>
void block(Item<T>& item, int64_t n) {
  Vec acc[kRows][kVecs];
  for (int row = 0; row < kRows; ++row) {
    for (int v = 0; v < kVecs; ++v) acc[row][v] = hn::Zero(D());
  }
  const bool is_f32 = item.p->input_dtype == DType::kFloat32;
  const int64_t depth = item.w.depth, step = is_f32 ? depth : kWidenedDepths;
  for (int64_t k0 = 0; k0 < depth; k0 += step) {
    const int64_t k1 = depth - k0 < step ? depth : k0 + step;
    if (!is_f32) widen(item, k0, k1);
    const float* input[kRows];
    for (int i = 0; i < kRows; ++i) {
      const int row = i < item.num_rows ? i : item.num_rows - 1;
      input[i] = is_f32 ? reinterpret_cast<const float*>(item.input[row]) : item.widened[row];
    }
    if constexpr (kIsByWidth) {
      accumulate_general(item.w, input, k0, k1, n, acc);
    } else {
      accumulate_transposed(item.w, input, k0, k1, n, acc);
    }
  }
  for (int row = 0; row < kRows && row < item.num_rows; ++row) {
    finish_typed(item, row, n, acc[row]);
  }
}

/// The item of one row when the weights lie depth by depth and are wider than deep, as in expand:
/// reads them in the order of memory and keeps the sums in cache. Blocks of columns would jump from
/// depth to depth every few lines, and the hardware's prefetching with them: 10 against 16 GB/s
/// from memory on one Zen 4 thread. The sums are the same.
template <class T>
void stream_columns(Item<T>& item) {
  const D d;
  HWY_ALIGN float sums[kStreamedColumns];
  const int64_t columns = item.end - item.begin, whole = columns / kLanes * kLanes;
  for (int64_t n = 0; n < columns; n += kLanes) hn::Store(hn::Zero(d), d, sums + n);
  const bool is_f32 = item.p->input_dtype == DType::kFloat32;
  if (!is_f32) widen(item, 0, item.w.depth);
  const float* input = is_f32 ? reinterpret_cast<const float*>(item.input[0]) : item.widened[0];
  const T* w = item.w.data + item.begin;
  for (int64_t k = 0; k < item.w.depth; ++k, w += item.w.stride) {
    const Vec factor = hn::Set(d, input[k]);
    for (int64_t n = 0; n < whole; n += kLanes) {
      hn::Store(hn::MulAdd(factor, load_f32(d, w + n), hn::Load(d, sums + n)), d, sums + n);
    }
    if (whole < columns) {
      const Vec tail = load_f32_n(d, w + whole, size_t(columns - whole));
      hn::Store(hn::MulAdd(factor, tail, hn::Load(d, sums + whole)), d, sums + whole);
    }
  }
  for (int64_t n = 0; n < columns; n += kLanes) {
    const Vec result[1] = {hn::Load(d, sums + n)};
    finish_typed(item, 0, item.begin + n, result);
  }
}

/// Sums of shrink that run side by side: one vector of columns of one row is a chain of
/// multiply-adds as long as x, each of which waits for the one before. With few columns, as of low
/// ranks, a core has time for several chains at once, whatever adapters and slices they are of.
template <class T>
class Chains {
 public:
  /// Takes all columns of an item of one row and f32 input.
  HWY_INLINE void add(const Item<T>& item) {
    for (int64_t n = item.begin; n < item.end; n += kLanes) {
      chains_[size_++] = {item.w,          n,
                          item.end - n,    reinterpret_cast<const float*>(item.input[0]),
                          item.slice,      item.rows[0],
                          item.factors[0], item.p->accumulate};
      if (size_ == kMost) run();
    }
  }
  /// Computes those that are taken.
  HWY_NOINLINE void run() {
    if (size_ == 0) return;
    Vec acc[kMost];
    const int64_t done = run_common(acc);
    for (int i = 0; i < size_; ++i) {
      const Chain& chain = chains_[i];
      const float* const input[1] = {chain.x + done};
      Vec sums[1][1] = {{acc[i]}};
      accumulate_general(chain.w, input, done, chain.w.depth, chain.n, sums);
      chain.finish(sums[0]);
    }
    size_ = 0;
  }

 private:
  static constexpr int kMost = 4;
  struct Chain {
    Weight<T> w;
    int64_t n, columns;  // of the sums: from column n on
    const float* x;
    const LoraProductSlice* slice;
    int64_t row;
    float factor;
    bool accumulate;

    HWY_INLINE void finish(const Vec (&sums)[1]) const {
      const int64_t at = row * slice->y_stride + n;
      const auto write = [&](auto* y)
                             HWY_ATTR { finish_row(y + at, sums, factor, accumulate, columns); };
      switch (slice->y_dtype) {
        case DType::kFloat16: return write(reinterpret_cast<half*>(slice->y));
        case DType::kBFloat16: return write(reinterpret_cast<bfloat16*>(slice->y));
        default: return write(reinterpret_cast<float*>(slice->y));
      }
    }
  };

  /// The depths that all chains can load, from 0 on; returns how many. Places without a chain
  /// repeat the last one.
  HWY_INLINE int64_t run_common(Vec (&acc)[kMost]) const {
    const D d;
    const float* x[kMost];
    const T* w[kMost];
    int64_t stride[kMost], depth = chains_[0].w.depth;
    for (int i = 0; i < kMost; ++i) {
      const Chain& chain = chains_[i < size_ ? i : size_ - 1];
      x[i] = chain.x;
      w[i] = chain.w.data + chain.n;
      stride[i] = chain.w.stride;
      const int64_t loadable = chain.w.loadable_depths(chain.n, kLanes);
      depth = loadable < depth ? loadable : depth;
      acc[i] = hn::Zero(d);
    }
    for (int64_t k = 0; k < depth; ++k) {
      for (int i = 0; i < kMost; ++i) {
        acc[i] = hn::MulAdd(hn::Set(d, x[i][k]), load_f32(d, w[i]), acc[i]);
        w[i] += stride[i];
      }
    }
    return depth;
  }

  Chain chains_[kMost];
  int size_ = 0;
};

/// All columns of the item, in the widest blocks whose sums fit the registers; where weights are
/// transposed on the way, one vector at a time.
template <class T, int kRows>
void columns(Item<T>& item) {
  if (!item.w.is_by_width) {
    for (int64_t n = item.begin; n < item.end; n += kLanes) block<T, kRows, 1, false>(item, n);
    return;
  }
  constexpr int kMaxVecs = kSums / kRows < 8 ? kSums / kRows : 8;
  int64_t n = item.begin;
  const auto take = [&](auto vecs) HWY_ATTR {
    constexpr int kVecs = decltype(vecs)::value;
    if constexpr (kVecs <= kMaxVecs) {
      for (; item.end - n > (kVecs - 1) * kLanes; n += kVecs * kLanes)
        block<T, kRows, kVecs, true>(item, n);
    }
  };
  take(std::integral_constant<int, 8>());
  take(std::integral_constant<int, 4>());
  take(std::integral_constant<int, 2>());
  take(std::integral_constant<int, 1>());
}

/// Columns [begin, end) of slice s, for the rows of a tile.
template <class T>
void run_item(const LoraProduct& p, const GroupTile& tile, int s, int64_t begin, int64_t end,
              Chains<T>& chains) {
  const LoraProductSlice& slice = p.slices[s];
  const LoraWeight weight = p.weight_of(tile.slot, s);
  const int64_t width = p.is_shrink ? weight.rank : slice.width;
  if (weight.data == nullptr || begin >= width) return;

  Item<T> item;
  item.w = {static_cast<const T*>(weight.data), weight.row_stride,
            p.is_shrink ? p.features : weight.rank, width, p.is_by_width};
  item.p = &p;
  item.slice = &slice;
  item.begin = begin;
  item.end = end < width ? end : width;
  item.num_rows = tile.count;
  const int64_t input_bytes = p.input_dtype == DType::kFloat32 ? 4 : 2;
  const float entry_scale = p.is_shrink ? 1.0f : weight.scale;
  for (int i = 0; i < tile.count; ++i) {
    const int64_t row = p.groups->rows[tile.first + i];
    item.rows[i] = row;
    item.input[i] = p.input + (row * p.input_stride + s * p.input_slice_stride) * input_bytes;
    const float row_scale = p.row_scale != nullptr ? p.row_scale[row] : 1.0f;
    item.factors[i] = p.scale * row_scale * entry_scale;
  }
  if (tile.count == 1 && p.is_shrink && p.is_by_width && p.input_dtype == DType::kFloat32) {
    chains.add(item);
  } else if (tile.count == 1) {
    const int64_t num_columns = item.end - begin;
    const bool is_streamed = !p.is_shrink && p.is_by_width && num_columns > kMaxBlockColumns &&
                             num_columns <= kStreamedColumns;
    is_streamed ? stream_columns(item) : columns<T, 1>(item);
  } else if (tile.count <= 4) {
    columns<T, 4>(item);
  } else {
    columns<T, 8>(item);
  }
}

template <class T>
void run_items(const LoraProduct& p, int64_t begin, int64_t end) {
  Chains<T> chains;
  for (int64_t i = begin; i < end; ++i) {
    const auto [tile, s, first] = p.place_of(i);
    run_item<T>(p, tile, s, first, first + p.slices[s].chunk, chains);
  }
  chains.run();
}

template <class T>
void run_columns(const LoraProduct& p, int s, int64_t begin, int64_t end) {
  Chains<T> chains;
  for (int t = 0; t < p.groups->num_tiles; ++t) {
    run_item<T>(p, p.groups->tiles[t], s, begin, end, chains);
  }
  chains.run();
}

void run_product_items(const LoraProduct& p, int64_t begin, int64_t end) {
  switch (p.weights.dtype) {
    case DType::kFloat16: return run_items<half>(p, begin, end);
    case DType::kBFloat16: return run_items<bfloat16>(p, begin, end);
    default: return run_items<float>(p, begin, end);
  }
}

void run_product_columns(const LoraProduct& p, int s, int64_t begin, int64_t end) {
  switch (p.weights.dtype) {
    case DType::kFloat16: return run_columns<half>(p, s, begin, end);
    case DType::kBFloat16: return run_columns<bfloat16>(p, s, begin, end);
    default: return run_columns<float>(p, s, begin, end);
  }
}

}  // namespace heddle::cpu::lora::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu::lora {
HWY_EXPORT(run_product_items);
HWY_EXPORT(run_product_columns);
void run_product_items(const LoraProduct& p, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_product_items)(p, begin, end);
}
void run_product_columns(const LoraProduct& p, int s, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_product_columns)(p, s, begin, end);
}
}  // namespace heddle::cpu::lora
#endif
