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

Place place_of(Projection projection) { return kPlaces[static_cast<size_t>(projection)]; }

size_t site_index(int64_t layer, LoraSite site) {
  return static_cast<size_t>(layer) * kNumLoraSites + static_cast<size_t>(site);
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
      tables_{.sites = std::vector<Site>(static_cast<size_t>(dims.num_layers) * kNumLoraSites)},
      affines_(tables_.sites.size()) {}

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
                        std::vector<SliceAffine> affines) {
  return add(ctx, prepare(ctx, adapter, std::move(affines)));
}

int32_t LoraTables::add(const ExecContext& ctx, Prepared prepared) {
  const auto free = std::ranges::find(adapters_, false, &Loaded::is_used_);
  const auto slot = static_cast<int32_t>(free - adapters_.begin());
  make_room(prepared.affines_, slot);
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
  put_affines(added.affines_, slot);
  return slot;
}

void LoraTables::remove(const ExecContext& ctx, int32_t slot) noexcept {
  Loaded& adapter = adapters_[static_cast<size_t>(slot)];
  take_out(ctx, adapter);
  take_out_affines(adapter.affines_, slot);
  adapter = {};
}

const LoraTables::Site& LoraTables::site(int64_t layer, LoraSite site) const {
  return tables_.sites[site_index(layer, site)];
}

const SiteAffines& LoraTables::affines(int64_t layer, LoraSite site) const {
  return affines_[site_index(layer, site)];
}

/// Entries for all slots up to this one, at the sites that the affines are for.
void LoraTables::make_room(const std::vector<SliceAffine>& affines, int32_t slot) {
  for (const SliceAffine& affine : affines) {
    SiteAffines& site = affines_[site_index(affine.layer, place_of(affine.projection).site)];
    site.resize(std::max(site.size(), static_cast<size_t>(slot) + 1));
  }
}

void LoraTables::put_affines(const std::vector<SliceAffine>& affines, int32_t slot) noexcept {
  const auto begin_of = [](const std::vector<float>& values) {
    return values.empty() ? nullptr : values.data();
  };
  for (const SliceAffine& affine : affines) {
    const auto [site, slice] = place_of(affine.projection);
    affines_[site_index(affine.layer, site)][static_cast<size_t>(slot)]
            [static_cast<size_t>(slice)] = {begin_of(affine.factor), begin_of(affine.offset)};
  }
}

/// Leaves a site empty where no other adapter has values there.
void LoraTables::take_out_affines(const std::vector<SliceAffine>& affines, int32_t slot) noexcept {
  for (const SliceAffine& affine : affines) {
    const auto [site, slice] = place_of(affine.projection);
    SiteAffines& of_site = affines_[site_index(affine.layer, site)];
    if (of_site.empty()) continue;  // since the slot's slice before this one
    of_site[static_cast<size_t>(slot)] = {};
    const auto has_none = [](const auto& slices) {
      return std::ranges::all_of(slices, [](const AffineView& view) {
        return view.factor == nullptr && view.offset == nullptr;
      });
    };
    if (std::ranges::all_of(of_site, has_none)) of_site.clear();
  }
}

/// Copies the weights of an adapter to one piece of memory.
LoraTables::Prepared LoraTables::prepare(const ExecContext& ctx, const Adapter& adapter,
                                         std::vector<SliceAffine> affines) const {
  const std::vector<Copy> halves = halves_of(adapter, dims_, form_);
  size_t num_bytes = 0;
  for (const Copy& copy : halves) num_bytes += padded(copy.target.num_bytes());
  Prepared copied;
  copied.memory_ = allocate_zeroed(ctx.device, num_bytes);
  copied.affines_ = std::move(affines);
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
                                 .b = keep(*half++)});
    }
  }
  return copied;
}

/// Tables of all adapters, with room to grow.
LoraTables::Tables LoraTables::make_tables(const ExecContext& ctx, int32_t max_rank) const {
  Tables made{.sites = std::vector<Site>(tables_.sites.size()),
              .capacity = static_cast<int32_t>(std::bit_ceil(adapters_.size())),
              .max_rank = max_rank};
  for (const Loaded& adapter : adapters_) {
    for (const Weights& w : adapter.weights_) {
      Site& site = made.sites[static_cast<size_t>(w.site)];
      if (find(site, w) == nullptr) add_table(ctx, site, w, made);
      set(ctx, *find(site, w), w);
    }
  }
  return made;
}

/// Puts an adapter into the tables that there are, and into new ones where it is the first
/// of its dtype at a site.
void LoraTables::put(const ExecContext& ctx, const Loaded& adapter) {
  std::vector<Site> more(tables_.sites.size());
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
  } catch (...) {
    take_out(ctx, adapter);
    throw;
  }
  for (size_t i = 0; i < more.size(); ++i) {
    if (!more[i].empty()) ++version_;
    tables_.sites[i].merge(
        more[i], [](const SiteTable& x, const SiteTable& y) { return x.dtype < y.dtype; });
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
  std::vector<int64_t> in_features, out_features;  // of the site's slices
  for (int p = 0; p < kNumProjections; ++p) {
    const auto site = static_cast<int64_t>(kPlaces[static_cast<size_t>(p)].site);
    if (site != weights.site % kNumLoraSites) continue;
    in_features.push_back(dims_.projections[p].in);
    out_features.push_back(dims_.projections[p].out);
  }
  const DType dtype = weights.a.dtype();
  const auto next = std::ranges::find_if(to, [&](const SiteTable& t) { return t.dtype > dtype; });
  to.emplace(next, ctx, size.capacity, in_features, out_features, size.max_rank, dtype, form_);
}

}  // namespace heddle::model
