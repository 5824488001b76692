#pragma once

// A paged cache in every addressing that the contract allows, filled from plain arrays.

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "heddle/ops/kv_cache.h"

#include "core/math.h"
#include "testing/mirror.h"
#include "testing/poison.h"
#include "testing/random.h"

namespace heddle::testing {

enum class PageLayout { kHeadMajor, kTokenMajor, kSeparateKeysAndValues, kPointers };

struct CacheShape {
  int num_kv_heads = 1, head_dim = 64, page_size = 16;
  PageLayout layout = PageLayout::kHeadMajor;
  bool wide_indices = false;  // i64 instead of i32
  int gap = 0;                // elements between slots; not with kPointers
};

/// A cache whose memory is NaN and whose pages lie in random order; the page table has wild ids
/// after its last page.
template <class T>
class PagedCache {
 public:
  PagedCache(const CacheShape& shape, const std::vector<int64_t>& kv_lens)
      : shape_(shape), kv_lens_(kv_lens) {
    page_indptr_.push_back(0);
    for (const int64_t len : kv_lens) {
      const int64_t pages = ceil_div(len, shape.page_size);
      page_indptr_.push_back(page_indptr_.back() + pages);
      last_page_len_.push_back(pages == 0 ? -77 : len - (pages - 1) * shape.page_size);
    }
    const int64_t num_pages = page_indptr_.back() + 2;  // two belong to no sequence
    place_strides(num_pages);
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

  [[nodiscard]] PagedKv kv() { return kv_at(reinterpret_cast<std::byte*>(memory_->data()), {}); }
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
    return {kv_at(all.raw(), mirror.device()), table_of(mirror, moved)};
  }

  /// The first element of a key (or value).
  T* key(int64_t seq, int64_t position, int64_t head) { return at(seq, position, head, k_offset_); }
  T* value(int64_t seq, int64_t position, int64_t head) {
    return at(seq, position, head, v_offset_);
  }

  /// Fills sequence seq, from its start, from k and v [at least kv_len, num_kv_heads, head_dim].
  void fill(int64_t seq, const std::vector<T>& k, const std::vector<T>& v) {
    for (int64_t j = 0; j < kv_lens_[static_cast<size_t>(seq)]; ++j) {
      for (int64_t h = 0; h < shape_.num_kv_heads; ++h) {
        const int64_t from = (j * shape_.num_kv_heads + h) * shape_.head_dim;
        std::copy_n(k.data() + from, shape_.head_dim, key(seq, j, h));
        std::copy_n(v.data() + from, shape_.head_dim, value(seq, j, h));
      }
    }
  }

  PoisonedBuffer<T>& memory() { return *memory_; }
  [[nodiscard]] const CacheShape& shape() const { return shape_; }

 private:
  static constexpr int kNumLayers = 3, kLayer = 1;

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
  int64_t page_name(int64_t id) {
    if (shape_.layout != PageLayout::kPointers) return id;
    return reinterpret_cast<int64_t>(memory_->data() + id * page_stride_);
  }
  T* at(int64_t seq, int64_t position, int64_t head, int64_t offset) {
    const int64_t index = page_indptr_[static_cast<size_t>(seq)] + position / shape_.page_size;
    return memory_->data() + page_ids_[static_cast<size_t>(index)] * page_stride_ + offset +
           head * head_stride_ + position % shape_.page_size * slot_stride_;
  }
  [[nodiscard]] PagedKv kv_at(std::byte* memory, Device device) const {
    const auto& s = shape_;
    if (s.layout == PageLayout::kPointers) {
      return PagedKv::from_pointers(kDType<T>, device, kNumLayers, kLayer, s.num_kv_heads,
                                    s.page_size, s.head_dim);
    }
    const std::array<int64_t, 4> extents{static_cast<int64_t>(page_ids_.size()), s.num_kv_heads,
                                         s.page_size, s.head_dim};
    const std::array<int64_t, 4> strides{page_stride_, head_stride_, slot_stride_, 1};
    auto view = [&](int64_t offset) {
      return TensorView(memory + offset * int64_t{sizeof(T)}, kDType<T>, device, extents, strides);
    };
    return PagedKv::from_pool(view(k_offset_), view(v_offset_));
  }
  /// moved: bytes from the memory here to its mirror, which addresses must point into.
  PageTable table_of(Mirror& mirror, int64_t moved) {
    const bool has_addresses = shape_.layout == PageLayout::kPointers;
    given_ = {words(WrongWord::kPageIndptr), words(WrongWord::kPages),
              words(WrongWord::kLastPageLen)};
    if (has_addresses) {
      std::vector<int64_t>& pages = given_[WrongWord::kPages];
      for (size_t i = 0; i + 2 < pages.size(); ++i) {
        if (pages[i] == table_[i]) pages[i] += moved;
      }
    }
    const bool wide = shape_.wide_indices || has_addresses;
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
  std::optional<PoisonedBuffer<T>> memory_;
};

/// CSR starts of rows with the given lengths.
inline std::vector<int64_t> starts_of(const std::vector<int64_t>& lens, int64_t first = 0) {
  std::vector<int64_t> indptr{first};
  for (const int64_t len : lens) indptr.push_back(indptr.back() + len);
  return indptr;
}

}  // namespace heddle::testing
