#include "model/adapters/lora_tables.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace heddle::model {
namespace {

struct Place {
  LoraSite site;
  int slice;
};
constexpr std::array<Place, kNumProjections> kPlaces = {{{LoraSite::kQkv, 0},
                                                         {LoraSite::kQkv, 1},
                                                         {LoraSite::kQkv, 2},
                                                         {LoraSite::kO, 0},
                                                         {LoraSite::kGateUp, 0},
                                                         {LoraSite::kGateUp, 1},
                                                         {LoraSite::kDown, 0}}};
constexpr std::array<int, kNumLoraSites> kNumSlices = {3, 1, 2, 1};

template <class Word>
void transpose(std::byte* out, const std::byte* in, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      std::memcpy(out + (c * rows + r) * int64_t{sizeof(Word)},
                  in + (r * columns + c) * int64_t{sizeof(Word)}, sizeof(Word));
    }
  }
}

}  // namespace

LoraTables::LoraTables(const ModelDims& dims)
    : sites_(static_cast<size_t>(dims.num_layers) * kNumLoraSites) {}

int32_t LoraTables::add(const PeftAdapter& adapter) {
  const int32_t slot = num_slots_++;
  for (const AdapterPair& pair : adapter.pairs()) {
    const auto [site_kind, slice] = kPlaces[static_cast<size_t>(pair.projection)];
    const size_t site_index =
        static_cast<size_t>(pair.layer) * kNumLoraSites + static_cast<size_t>(site_kind);
    const int num_slices = kNumSlices[static_cast<size_t>(site_kind)];
    Entries& entries = entries_of(sites_[site_index], num_slices, pair.dtype);
    const size_t index = static_cast<size_t>(slot * num_slices + slice);
    entries.a.resize(std::max(entries.a.size(), index + 1));
    entries.b.resize(entries.a.size());
    const auto rank = static_cast<int32_t>(pair.rank);
    entries.a[index] = {keep_transposed(pair.a, pair.rank, pair.in_features, pair.dtype), rank,
                        1.0f, pair.rank};
    entries.b[index] = {keep_transposed(pair.b, pair.out_features, pair.rank, pair.dtype), rank,
                        pair.scale, pair.out_features};
    max_rank_ = std::max(max_rank_, rank);
  }
  // Tables point into the entries, which may have moved, and every table has all slots.
  for (size_t index = 0; index < sites_.size(); ++index) {
    Site& site = sites_[index];
    const int num_slices = kNumSlices[index % kNumLoraSites];
    site.tables.clear();
    for (Entries& entries : site.by_dtype) {
      entries.a.resize(static_cast<size_t>(num_slots_) * static_cast<size_t>(num_slices));
      entries.b.resize(entries.a.size());
      const LoraTable a{
          entries.a.data(),      num_slots_, num_slices, max_rank_, entries.dtype, Device{},
          LoraLayout::kRankMinor};
      LoraTable b = a;
      b.entries = entries.b.data();
      b.layout = LoraLayout::kRankMajor;
      site.tables.push_back({a, b});
    }
  }
  return slot;
}

std::span<const SiteTable> LoraTables::site(int64_t layer, LoraSite site) const {
  return sites_[static_cast<size_t>(layer) * kNumLoraSites + static_cast<size_t>(site)].tables;
}

LoraTables::Entries& LoraTables::entries_of(Site& site, int num_slices, DType dtype) {
  for (Entries& entries : site.by_dtype) {
    if (entries.dtype == dtype) return entries;
  }
  const size_t size = static_cast<size_t>(num_slots_) * static_cast<size_t>(num_slices);
  site.by_dtype.push_back({dtype, std::vector<LoraWeight>(size), std::vector<LoraWeight>(size)});
  return site.by_dtype.back();
}

/// A copy of `source` [rows, columns] as [columns, rows]; lives as long as this object.
const void* LoraTables::keep_transposed(const std::byte* source, int64_t rows, int64_t columns,
                                        DType dtype) {
  buffers_.emplace_back(static_cast<size_t>(rows * columns) * size_of(dtype));
  std::vector<std::byte>& buffer = buffers_.back();
  if (size_of(dtype) == 4) {
    transpose<uint32_t>(buffer.data(), source, rows, columns);
  } else {
    transpose<uint16_t>(buffer.data(), source, rows, columns);
  }
  num_bytes_ += buffer.size();
  return buffer.data();
}

}  // namespace heddle::model
