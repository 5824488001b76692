#pragma once

// A paged cache in every addressing that the contract allows, filled from plain arrays.

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "heddle/ops/kv_cache.h"

#include "core/math.h"
#include "testing/mirror.h"
#include "testing/poison.h"
#include "testing/random.h"

namespace heddle::testing {

enum class PageLayout { kHeadMajor, kTokenMajor, kSeparateKeysAndValues, kPointers };

/// Of a cache of f8e4m3: scales of tokens after the codes of their page or in memory of their own,
/// or two scales for all. Pages with addresses have no memory of their own for them.
enum class ScalePlace { kInPages, kOwnPool, kWholeCache };

struct CacheShape {
  int num_kv_heads = 1, head_dim = 64, page_size = 16;
  PageLayout layout = PageLayout::kHeadMajor;
  bool wide_indices = false;  // i64 instead of i32
  int gap = 0;                // elements between slots; not with kPointers
  ScalePlace scales = ScalePlace::kInPages;
};

/// Some scale of a head of codes, which depends on them alone.
inline float scale_for(const float8_e4m3* codes, int head_dim) {
  int sum = 0;
  for (int d = 0; d < head_dim; ++d) sum += codes[d].bits;
  return 0.5f + static_cast<float>(sum % 29) / 29.0f;
}

/// A cache whose memory is NaN and whose pages lie in random order; the page table has wild ids
/// after its last page.
template <class T>
class PagedCache {
 public:
  PagedCache(const CacheShape& shape, const std::vector<int64_t>& kv_lens)
      : shape_(shape), kv_lens_(kv_lens) {
    if (has_addresses() && shape_.scales == ScalePlace::kOwnPool) {
      shape_.scales = ScalePlace::kInPages;
    }
    page_indptr_.push_back(0);
    for (const int64_t len : kv_lens) {
      const int64_t pages = ceil_div(len, shape.page_size);
      page_indptr_.push_back(page_indptr_.back() + pages);
      last_page_len_.push_back(pages == 0 ? -77 : len - (pages - 1) * shape.page_size);
    }
    const int64_t num_pages = page_indptr_.back() + 2;  // two belong to no sequence
    place_strides(num_pages);
    if (kHasCodes) place_scales(num_pages);
    memory_.emplace(static_cast<size_t>(num_pages * page_stride_ * memory_per_page_));
    page_ids_.resize(static_cast<size_t>(num_pages));
    std::iota(page_ids_.begin(), page_ids_.end(), 0);
    std::shuffle(page_ids_.begin(), page_ids_.end(), rng());
    for (size_t i = 0; i + 2 < page_ids_.size(); ++i) table_.push_back(page_name(page_ids_[i]));
    table_.push_back(int64_t{1} << (shape.wide_indices ? 50 : 30));
    table_.push_back(-1000000);
  }

  /// A word of the table that the next calls get in place of the right one.
  struct WrongWord {
    enum Array { kPageIndptr, kPages, kLastPageLen } array;
    int64_t index, value;
  };
  std::vector<WrongWord> wrong_words;
  /// The words of an array, the wrong ones included.
  [[nodiscard]] std::vector<int64_t> words(WrongWord::Array array) const {
    std::vector<int64_t> all = array == WrongWord::kPageIndptr ? page_indptr_
                               : array == WrongWord::kPages    ? table_
                                                               : last_page_len_;
    for (const WrongWord& w : wrong_words) {
      if (w.array == array) all[static_cast<size_t>(w.index)] = w.value;
    }
    return all;
  }
  [[nodiscard]] int64_t pool_pages() const { return std::ssize(page_ids_); }

  [[nodiscard]] PagedKv kv() {
    return kv_at(reinterpret_cast<std::byte*>(memory_->data()), scale_memory_.data(), {});
  }
  [[nodiscard]] PageTable table() {
    Mirror here;
    return table_of(here, 0);
  }
  /// The cache and its table where calls of the mirror's device read and write them, until
  /// mirror.back().
  std::pair<PagedKv, PageTable> on(Mirror& mirror) {
    const TensorView all = mirror(memory_->view({std::ssize(memory())}));
    const int64_t moved =
        reinterpret_cast<intptr_t>(all.raw()) - reinterpret_cast<intptr_t>(memory_->data());
    float* scales = nullptr;
    if (scale_memory_.size() > 0) {
      scales = mirror(scale_memory_.view({std::ssize(scale_memory_)})).template data<float>();
    }
    return {kv_at(all.raw(), scales, mirror.device()), table_of(mirror, moved)};
  }

  /// The first element of a key (or value).
  T* key(int64_t seq, int64_t position, int64_t head) { return at(seq, position, head, k_offset_); }
  T* value(int64_t seq, int64_t position, int64_t head) {
    return at(seq, position, head, v_offset_);
  }

  /// The scale of a key or value of f8e4m3, where tokens have some.
  float* scale(bool is_value, int64_t seq, int64_t position, int64_t head) {
    const int64_t slot = position % shape_.page_size;
    std::byte* pool = shape_.scales == ScalePlace::kOwnPool
                          ? reinterpret_cast<std::byte*>(scale_memory_.data())
                          : reinterpret_cast<std::byte*>(memory_->data());
    return reinterpret_cast<float*>(pool + page_id(seq, position) * scale_page_ +
                                    (is_value ? v_scale_ : k_scale_) + head * scale_head_ +
                                    slot * scale_slot_);
  }
  /// What the cache reads where fill() put `rows`.
  [[nodiscard]] std::vector<double> values_of(const std::vector<T>& rows, bool is_value) const {
    std::vector<double> values = to_double(rows);
    if constexpr (kHasCodes) {
      const int dim = shape_.head_dim;
      for (size_t i = 0; i < values.size(); ++i) {
        const bool is_common = shape_.scales == ScalePlace::kWholeCache;
        values[i] *= is_common ? (is_value ? kScaleOfValues : kScaleOfKeys)
                               : scale_for(&rows[i - i % size_t(dim)], dim);
      }
    }
    return values;
  }

  /// Fills sequence seq, from its start, from k and v [at least kv_len, num_kv_heads, head_dim].
  void fill(int64_t seq, const std::vector<T>& k, const std::vector<T>& v) {
    for (int64_t j = 0; j < kv_lens_[static_cast<size_t>(seq)]; ++j) {
      for (int64_t h = 0; h < shape_.num_kv_heads; ++h) {
        const int64_t from = (j * shape_.num_kv_heads + h) * shape_.head_dim;
        std::copy_n(k.data() + from, shape_.head_dim, key(seq, j, h));
        std::copy_n(v.data() + from, shape_.head_dim, value(seq, j, h));
        if constexpr (kHasCodes) {
          if (shape_.scales == ScalePlace::kWholeCache) continue;
          *scale(false, seq, j, h) = scale_for(k.data() + from, shape_.head_dim);
          *scale(true, seq, j, h) = scale_for(v.data() + from, shape_.head_dim);
        }
      }
    }
  }

  PoisonedBuffer<T>& memory() { return *memory_; }
  PoisonedBuffer<float>& scale_memory() { return scale_memory_; }
  static constexpr float kScaleOfKeys = 0.37f, kScaleOfValues = 2.5f;  // of whole caches
  [[nodiscard]] const CacheShape& shape() const { return shape_; }

 private:
  static constexpr int kNumLayers = 3, kLayer = 1;
  static constexpr bool kHasCodes = std::is_same_v<T, float8_e4m3>;

  [[nodiscard]] bool has_addresses() const { return shape_.layout == PageLayout::kPointers; }
  void place_strides(int64_t num_pages) {
    const auto& s = shape_;
    const int64_t row = s.head_dim + s.gap, keys = row * s.num_kv_heads * s.page_size;
    head_stride_ = row * s.page_size;
    slot_stride_ = row;
    page_stride_ = 2 * keys;
    v_offset_ = keys;
    if (s.layout == PageLayout::kTokenMajor) {
      head_stride_ = row;
      slot_stride_ = row * s.num_kv_heads;
    } else if (s.layout == PageLayout::kSeparateKeysAndValues) {
      page_stride_ = keys;
      v_offset_ = num_pages * keys;
      memory_per_page_ = 2;
    } else if (s.layout == PageLayout::kPointers) {
      page_stride_ = kNumLayers * 2 * keys;
      k_offset_ = kLayer * 2 * keys;
      v_offset_ = k_offset_ + keys;
    }
  }
  /// Of a cache of f8e4m3, whose page_stride_ counts bytes.
  void place_scales(int64_t num_pages) {
    const auto& s = shape_;
    constexpr int64_t kFloat = sizeof(float);
    if (s.scales == ScalePlace::kWholeCache) return;
    const int64_t of_keys = s.num_kv_heads * s.page_size * kFloat;
    scale_head_ = s.page_size * kFloat;
    scale_slot_ = kFloat;
    if (s.scales == ScalePlace::kOwnPool) {
      if (s.layout == PageLayout::kTokenMajor) {
        scale_head_ = kFloat;
        scale_slot_ = s.num_kv_heads * kFloat;
      }
      v_scale_ = of_keys;
      scale_page_ = 2 * of_keys + kFloat;
      scale_memory_ = PoisonedBuffer<float>(static_cast<size_t>(num_pages * scale_page_ / kFloat));
      return;
    }
    k_scale_ = round_up(page_stride_, has_addresses() ? 16 : kFloat);
    page_stride_ = k_scale_ + 2 * of_keys;
    if (has_addresses()) {
      page_stride_ = round_up(k_scale_ + kNumLayers * 2 * of_keys, 16);
      k_scale_ += kLayer * 2 * of_keys;
    }
    v_scale_ = k_scale_ + of_keys;
    scale_page_ = page_stride_;
    if (s.layout == PageLayout::kSeparateKeysAndValues) v_offset_ = num_pages * page_stride_;
  }
  int64_t page_name(int64_t id) {
    if (!has_addresses()) return id;
    return reinterpret_cast<int64_t>(memory_->data() + id * page_stride_);
  }
  [[nodiscard]] int64_t page_id(int64_t seq, int64_t position) const {
    const int64_t index = page_indptr_[static_cast<size_t>(seq)] + position / shape_.page_size;
    return page_ids_[static_cast<size_t>(index)];
  }
  T* at(int64_t seq, int64_t position, int64_t head, int64_t offset) {
    return memory_->data() + page_id(seq, position) * page_stride_ + offset + head * head_stride_ +
           position % shape_.page_size * slot_stride_;
  }
  [[nodiscard]] PagedKv kv_at(std::byte* memory, float* scale_memory, Device device) const {
    const auto& s = shape_;
    if (has_addresses()) {
      const PagedKv kv = PagedKv::from_pointers(kDType<T>, device, kNumLayers, kLayer,
                                                s.num_kv_heads, s.page_size, s.head_dim);
      const bool is_common = kHasCodes && s.scales == ScalePlace::kWholeCache;
      return is_common ? kv.with_scales(kScaleOfKeys, kScaleOfValues) : kv;
    }
    const std::array<int64_t, 4> extents{static_cast<int64_t>(page_ids_.size()), s.num_kv_heads,
                                         s.page_size, s.head_dim};
    const std::array<int64_t, 4> strides{page_stride_, head_stride_, slot_stride_, 1};
    auto view = [&](int64_t offset) {
      return TensorView(memory + offset * int64_t{sizeof(T)}, kDType<T>, device, extents, strides);
    };
    if constexpr (kHasCodes) {
      return pool_with_scales(view(k_offset_), view(v_offset_), memory, scale_memory);
    } else {
      return PagedKv::from_pool(view(k_offset_), view(v_offset_));
    }
  }
  [[nodiscard]] PagedKv pool_with_scales(const TensorView& k, const TensorView& v,
                                         std::byte* memory, float* scale_memory) const {
    if (shape_.scales == ScalePlace::kWholeCache) {
      return PagedKv::from_pool(k, v, kScaleOfKeys, kScaleOfValues);
    }
    constexpr int64_t kFloat = sizeof(float);
    const bool has_own = shape_.scales == ScalePlace::kOwnPool;
    std::byte* pool = has_own ? reinterpret_cast<std::byte*>(scale_memory) : memory;
    const std::array<int64_t, 3> extents{k.size(0), k.size(1), k.size(2)};
    const std::array<int64_t, 3> strides{scale_page_ / kFloat, scale_head_ / kFloat,
                                         scale_slot_ / kFloat};
    auto view = [&](int64_t offset) {
      return TensorView(pool + offset, DType::kFloat32, k.device(), extents, strides);
    };
    PagedKv kv = PagedKv::from_pool(k, v, view(k_scale_), view(v_scale_));
    if (has_own || random_int(0, 1) == 0) return kv;
    kv.scale_pool = nullptr;  // the same by the address of the page
    kv.k_scale_offset = k_scale_ / kFloat;
    kv.v_scale_offset = v_scale_ / kFloat;
    kv.scale_page_stride = 0;
    return kv;
  }
  /// moved: bytes from the memory here to its mirror, which addresses must point into.
  PageTable table_of(Mirror& mirror, int64_t moved) {
    given_ = {words(WrongWord::kPageIndptr), words(WrongWord::kPages),
              words(WrongWord::kLastPageLen)};
    if (has_addresses()) {
      std::vector<int64_t>& pages = given_[WrongWord::kPages];
      for (size_t i = 0; i + 2 < pages.size(); ++i) {
        if (pages[i] == table_[i]) pages[i] += moved;
      }
    }
    const bool wide = shape_.wide_indices || has_addresses();
    return {mirror(index_view(WrongWord::kPageIndptr, shape_.wide_indices)),
            mirror(index_view(WrongWord::kPages, wide)),
            mirror(index_view(WrongWord::kLastPageLen, !shape_.wide_indices))};
  }
  ConstTensorView index_view(WrongWord::Array array, bool is_int64) {
    const std::vector<int64_t>& wide = given_[array];
    narrow_[array].assign(wide.begin(), wide.end());
    if (is_int64) return host_view(wide.data(), {std::ssize(wide)});
    return host_view(narrow_[array].data(), {std::ssize(wide)});
  }

  CacheShape shape_;
  std::vector<int64_t> kv_lens_, page_indptr_, last_page_len_, page_ids_, table_;
  std::array<std::vector<int64_t>, 3> given_;   // what table() gave last, by WrongWord::Array
  std::array<std::vector<int32_t>, 3> narrow_;  // the same as i32
  int64_t page_stride_ = 0, head_stride_ = 0, slot_stride_ = 0, k_offset_ = 0, v_offset_ = 0;
  int64_t memory_per_page_ = 1;
  // Bytes: between the scales of pages, heads and slots, and from a page to its first ones.
  int64_t scale_page_ = 0, scale_head_ = 0, scale_slot_ = 0, k_scale_ = 0, v_scale_ = 0;
  std::optional<PoisonedBuffer<T>> memory_;
  PoisonedBuffer<float> scale_memory_{0};  // of kOwnPool
};

/// CSR starts of rows with the given lengths.
inline std::vector<int64_t> starts_of(const std::vector<int64_t>& lens, int64_t first = 0) {
  std::vector<int64_t> indptr{first};
  for (const int64_t len : lens) indptr.push_back(indptr.back() + len);
  return indptr;
}

}  // namespace heddle::testing
