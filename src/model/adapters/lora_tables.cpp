#include "model/adapters/lora_tables.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "heddle/core/dispatch.h"

#include "core/math.h"

namespace heddle::model {
namespace {

struct Place {
  LoraSite site;
  int32_t slice;
};
constexpr std::array<Place, kNumProjections> kPlaces = {{{LoraSite::kQkv, 0},
                                                         {LoraSite::kQkv, 1},
                                                         {LoraSite::kQkv, 2},
                                                         {LoraSite::kO, 0},
                                                         {LoraSite::kGateUp, 0},
                                                         {LoraSite::kGateUp, 1},
                                                         {LoraSite::kDown, 0}}};

size_t site_index(int64_t layer, LoraSite site) {
  return static_cast<size_t>(layer) * kNumLoraSites + static_cast<size_t>(site);
}

/// Calls slice(projection) for the slices of a site.
template <class Slice>
void for_projections(int64_t site, const Slice& slice) {
  for (int p = 0; p < kNumProjections; ++p) {
    const auto its_site = static_cast<int64_t>(kPlaces[static_cast<size_t>(p)].site);
    if (its_site == site % kNumLoraSites) slice(p);
  }
}

// How PEFT stores the two halves: A [rank, in_features], B [out_features, rank].
constexpr LoraLayout kStoredA = LoraLayout::kRankMajor, kStoredB = LoraLayout::kRankMinor;

/// One half of a pair: a weight of `rank` and `features`, without gaps.
struct Half {
  const std::byte* data;  // at any address
  DType dtype;
  LoraLayout layout;
  int64_t rank, features;
};

/// How it shall lie in memory.
struct Target {
  DType dtype;
  LoraLayout layout;
  int64_t rows, rank;  // the rank is at least the half's: zeros fill the rest
  int64_t row_stride;

  [[nodiscard]] size_t num_bytes() const {
    return static_cast<size_t>(rows * row_stride) * size_of(dtype);
  }
};

Target target_of(const Half& half, LoraLayout layout, const LoraForm& form) {
  const int64_t rank = AdapterTable::fitting_rank(half.rank, form.fit);
  const bool rank_major = layout == LoraLayout::kRankMajor;
  const DType dtype = form.dtype.value_or(half.dtype);
  return {dtype, layout, rank_major ? rank : half.features, rank,
          AdapterTable::fitting_row_stride(rank_major ? half.features : rank, dtype, form.fit)};
}

/// Elements between neighbours along the two axes of a weight.
struct Steps {
  int64_t rank, feature;
};
Steps steps_of(LoraLayout layout, int64_t row_stride) {
  return layout == LoraLayout::kRankMajor ? Steps{row_stride, 1} : Steps{1, row_stride};
}

template <class To, class From>
void copy_elements(std::byte* to, Steps to_steps, const Half& half) {
  const Steps steps =
      steps_of(half.layout, half.layout == LoraLayout::kRankMajor ? half.features : half.rank);
  for (int64_t r = 0; r < half.rank; ++r) {
    for (int64_t f = 0; f < half.features; ++f) {
      const auto element_of = [&](const Steps& s) { return r * s.rank + f * s.feature; };
      From from;
      std::memcpy(&from, half.data + element_of(steps) * int64_t{sizeof(From)}, sizeof(From));
      To value;
      if constexpr (std::is_same_v<To, From>) {
        value = from;  // all bits, those of a NaN too
      } else {
        value = from_float<To>(to_float(from));
      }
      std::memcpy(to + element_of(to_steps) * int64_t{sizeof(To)}, &value, sizeof(To));
    }
  }
}

std::vector<std::byte> lay_out(const Half& half, const Target& target) {
  std::vector<std::byte> bytes(target.num_bytes());
  const Steps steps = steps_of(target.layout, target.row_stride);
  dispatch_dtype<float, heddle::half, bfloat16>(half.dtype, "an adapter", [&]<class From>() {
    dispatch_dtype<float, heddle::half, bfloat16>(target.dtype, "an adapter", [&]<class To>() {
      copy_elements<To, From>(bytes.data(), steps, half);
    });
  });
  return bytes;
}

size_t padded(size_t bytes) {
  constexpr size_t kAlignment = 64;
  return round_up(bytes, kAlignment);
}

/// A half and how it shall lie in memory.
struct Copy {
  Half half;
  Target target;
};

/// Of each pair A, and B of each of its projections.
std::vector<Copy> halves_of(const Adapter& adapter, const ModelDims& dims, const LoraForm& form) {
  std::vector<Copy> halves;
  for (const AdapterPair& pair : adapter.pairs()) {
    const Half a{pair.a, pair.dtype, kStoredA, pair.rank, pair.in_features};
    halves.push_back({a, target_of(a, form.a, form)});
    int64_t first_row = 0;
    for (int i = 0; i < pair.module->num_projections; ++i) {
      const int64_t rows = dims.projections[static_cast<int>(pair.projection) + i].out;
      const auto skipped = static_cast<size_t>(first_row * pair.rank) * size_of(pair.dtype);
      const Half b{pair.b + skipped, pair.dtype, kStoredB, pair.rank, rows};
      halves.push_back({b, target_of(b, form.b, form)});
      first_row += rows;
    }
  }
  return halves;
}

}  // namespace

LoraForm LoraForm::of(DeviceType device, DType activations) {
  if (device == DeviceType::kCpu) return {LoraLayout::kRankMinor, LoraLayout::kRankMajor};
  return {kStoredA, kStoredB, LoraAlignment::k16Bytes, activations};
}

LoraTables::LoraTables(const ModelDims& dims, const LoraForm& form)
    : dims_(dims),
      form_(form),
      tables_{.sites = std::vector<Site>(static_cast<size_t>(dims.num_layers) * kNumLoraSites),
              .affines = AffineTables(tables_.sites.size())} {}

int LoraTables::fitting_rank(int64_t rank) const {
  return static_cast<int>(AdapterTable::fitting_rank(rank, form_.fit));
}

int64_t LoraTables::num_bytes(const Adapter& adapter) const {
  size_t bytes = 0;
  for (const Copy& copy : halves_of(adapter, dims_, form_)) {
    bytes += padded(copy.target.num_bytes());
  }
  return static_cast<int64_t>(bytes);
}

int32_t LoraTables::add(const ExecContext& ctx, const Adapter& adapter,
                        std::span<const SliceAffine> affines) {
  return add(ctx, prepare(ctx, adapter, affines));
}

int32_t LoraTables::add(const ExecContext& ctx, Prepared prepared) {
  const auto free = std::ranges::find(adapters_, false, &Loaded::is_used_);
  const auto slot = static_cast<int32_t>(free - adapters_.begin());
  if (free == adapters_.end()) adapters_.emplace_back();
  Loaded& added = adapters_[static_cast<size_t>(slot)];
  added = std::move(prepared);
  try {
    int32_t max_rank = tables_.max_rank;
    for (Weights& w : added.weights_) {
      w.slot = slot;
      max_rank = std::max(max_rank, w.rank);
    }
    // The slots and the largest rank of a table are fixed: where they do not do, all are made anew.
    if (slot < tables_.capacity && max_rank == tables_.max_rank) {
      put(ctx, added);
    } else {
      tables_ = make_tables(ctx, max_rank);
      ++version_;
    }
  } catch (...) {
    added = {};
    throw;
  }
  return slot;
}

void LoraTables::remove(const ExecContext& ctx, int32_t slot) noexcept {
  Loaded& adapter = adapters_[static_cast<size_t>(slot)];
  take_out(ctx, adapter);
  adapter = {};
}

const LoraTables::Site& LoraTables::site(int64_t layer, LoraSite site) const {
  return tables_.sites[site_index(layer, site)];
}

const AdapterTable* LoraTables::affines(int64_t layer, LoraSite site) const {
  return tables_.affines[site_index(layer, site)].get();
}

/// Copies the weights of an adapter to one piece of memory.
LoraTables::Prepared LoraTables::prepare(const ExecContext& ctx, const Adapter& adapter,
                                         std::span<const SliceAffine> affines) const {
  const std::vector<Copy> halves = halves_of(adapter, dims_, form_);
  size_t num_bytes = 0;
  for (const Copy& copy : halves) num_bytes += padded(copy.target.num_bytes());
  const size_t begin_of_affines = num_bytes;
  for (const SliceAffine& affine : affines) num_bytes += std::span(affine.values).size_bytes();
  Prepared copied;
  copied.memory_ = allocate_zeroed(ctx.device, num_bytes);
  copied.has_affines_ = !affines.empty();
  copied.is_used_ = true;
  std::byte* next = copied.memory_.get();
  const auto keep = [&](const Copy& copy) -> ConstTensorView {
    const auto& [half, target] = copy;
    const std::vector<std::byte> bytes = lay_out(half, target);
    copy_from_host(ctx, next, bytes);
    const bool rank_major = target.layout == LoraLayout::kRankMajor;
    const std::array<int64_t, 2> shape{target.rows, rank_major ? half.features : target.rank};
    const std::array<int64_t, 2> strides{target.row_stride, 1};
    const std::byte* place = std::exchange(next, next + padded(bytes.size()));
    return {place, target.dtype, ctx.device, shape, strides};
  };
  std::byte* next_affine = copied.memory_.get() + begin_of_affines;
  auto affine = affines.begin();
  const auto keep_affine = [&](const AdapterPair& pair, int projection) -> ConstTensorView {
    const auto p = static_cast<Projection>(static_cast<int>(pair.projection) + projection);
    if (affine == affines.end() || affine->layer != pair.layer || affine->projection != p) {
      return {};
    }
    const auto bytes = std::as_bytes(std::span((affine++)->values));
    copy_from_host(ctx, next_affine, bytes);
    const int64_t width = dims_[p].out;
    const std::byte* place = std::exchange(next_affine, next_affine + bytes.size());
    return {place,
            DType::kFloat32,
            ctx.device,
            {std::ssize(bytes) / (width * int64_t{sizeof(float)}), width}};
  };
  auto half = halves.begin();
  for (const AdapterPair& pair : adapter.pairs()) {
    const auto rank = static_cast<int32_t>(half->target.rank);
    const ConstTensorView a = keep(*half++);
    for (int i = 0; i < pair.module->num_projections; ++i) {
      const auto [site, slice] = kPlaces[static_cast<size_t>(pair.projection) + size_t(i)];
      copied.weights_.push_back({.site = pair.layer * kNumLoraSites + static_cast<int64_t>(site),
                                 .slice = slice,
                                 .slot = -1,
                                 .rank = rank,
                                 .scale = pair.scale,
                                 .a = a,
                                 .b = keep(*half++),
                                 .affine = keep_affine(pair, i)});
    }
  }
  return copied;
}

/// Tables of all adapters, with room to grow.
LoraTables::Tables LoraTables::make_tables(const ExecContext& ctx, int32_t max_rank) const {
  Tables made{.sites = std::vector<Site>(tables_.sites.size()),
              .affines = AffineTables(tables_.sites.size()),
              .capacity = static_cast<int32_t>(std::bit_ceil(adapters_.size())),
              .max_rank = max_rank};
  for (const Loaded& adapter : adapters_) {
    for (const Weights& w : adapter.weights_) {
      Site& site = made.sites[static_cast<size_t>(w.site)];
      if (find(site, w) == nullptr) add_table(ctx, site, w, made);
      set(ctx, *find(site, w), w);
    }
    put_affines(ctx, adapter, made, made.affines);
  }
  return made;
}

/// Into the tables that there are, and into new ones, which come to `more`.
void LoraTables::put_affines(const ExecContext& ctx, const Loaded& adapter, Tables& tables,
                             AffineTables& more) const {
  for (const Weights& w : adapter.weights_) {
    if (!w.affine) continue;
    const auto site = static_cast<size_t>(w.site);
    auto& table = tables.affines[site] ? tables.affines[site] : more[site];
    if (!table) {
      constexpr int32_t kMostRows = 2;  // factor and offset
      table = std::make_unique<AdapterTable>(ctx, tables.capacity, out_features(w.site), kMostRows,
                                             DType::kFloat32, LoraLayout::kRankMajor);
    }
    table->set(ctx, w.slot, w.slice, w.affine);
  }
}

/// Puts an adapter into the tables that there are, and into new ones where it is the first
/// of its dtype at a site.
void LoraTables::put(const ExecContext& ctx, const Loaded& adapter) {
  std::vector<Site> more(tables_.sites.size());
  AffineTables more_affines(tables_.sites.size());
  for (const Weights& w : adapter.weights_) {
    const auto site = static_cast<size_t>(w.site);
    if (find(tables_.sites[site], w) == nullptr && find(more[site], w) == nullptr) {
      add_table(ctx, more[site], w, tables_);
    }
  }
  try {
    for (const Weights& w : adapter.weights_) {
      const auto site = static_cast<size_t>(w.site);
      SiteTable* table = find(tables_.sites[site], w);
      set(ctx, table != nullptr ? *table : *find(more[site], w), w);
    }
    put_affines(ctx, adapter, tables_, more_affines);
  } catch (...) {
    take_out(ctx, adapter);
    throw;
  }
  for (size_t i = 0; i < more.size(); ++i) {
    if (!more[i].empty() || more_affines[i]) ++version_;
    tables_.sites[i].merge(
        more[i], [](const SiteTable& x, const SiteTable& y) { return x.dtype < y.dtype; });
    if (more_affines[i]) tables_.affines[i] = std::move(more_affines[i]);
  }
}

/// Empties the adapter's slot, as far as the device still does what it is told.
void LoraTables::take_out(const ExecContext& ctx, const Loaded& adapter) noexcept {
  try {
    for (const Weights& w : adapter.weights_) {
      if (SiteTable* table = find(tables_.sites[static_cast<size_t>(w.site)], w)) {
        table->a.clear(ctx, w.slot);
        table->b.clear(ctx, w.slot);
      }
      const auto& affines = tables_.affines[static_cast<size_t>(w.site)];
      if (affines && w.affine) affines->clear(ctx, w.slot);
    }
  } catch (const Error&) {  // what the device cannot clear it cannot run either
  }
}

void LoraTables::set(const ExecContext& ctx, SiteTable& table, const Weights& weights) {
  table.a.set(ctx, weights.slot, weights.slice, weights.a);
  table.b.set(ctx, weights.slot, weights.slice, weights.b, weights.scale);
}

/// The table of a site that takes weights of their dtype, null where there is none.
SiteTable* LoraTables::find(Site& site, const Weights& weights) {
  const auto found = std::ranges::find(site, weights.a.dtype(), &SiteTable::dtype);
  return found == site.end() ? nullptr : &*found;
}

void LoraTables::add_table(const ExecContext& ctx, Site& to, const Weights& weights,
                           const Tables& size) const {
  std::vector<int64_t> in_features;  // of the site's slices
  for_projections(weights.site, [&](int p) { in_features.push_back(dims_.projections[p].in); });
  const DType dtype = weights.a.dtype();
  const auto next = std::ranges::find_if(to, [&](const SiteTable& t) { return t.dtype > dtype; });
  to.emplace(next, ctx, size.capacity, in_features, out_features(weights.site), size.max_rank,
             dtype, form_);
}

/// Of the slices of a site.
std::vector<int64_t> LoraTables::out_features(int64_t site) const {
  std::vector<int64_t> features;
  for_projections(site, [&](int p) { features.push_back(dims_.projections[p].out); });
  return features;
}

}  // namespace heddle::model
