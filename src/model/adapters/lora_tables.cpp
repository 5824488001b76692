#include "model/adapters/lora_tables.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "heddle/core/dispatch.h"

#include "core/device_graph.h"
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
To converted(const std::byte* from) {
  From value;
  std::memcpy(&value, from, sizeof value);
  if constexpr (std::is_same_v<To, From>) {
    return value;  // all bits, those of a NaN too
  } else {
    return from_float<To>(to_float(value));
  }
}

template <class To, class From>
void copy_elements(std::byte* to, Steps to_steps, const Half& half) {
  const Steps steps =
      steps_of(half.layout, half.layout == LoraLayout::kRankMajor ? half.features : half.rank);
  // Along the axis without gaps of what is written.
  const bool rank_inside = to_steps.rank == 1 && to_steps.feature != 1;
  const int64_t outer = rank_inside ? half.features : half.rank;
  const int64_t inner = rank_inside ? half.rank : half.features;
  const auto swapped = [&](Steps s) { return rank_inside ? s : Steps{s.feature, s.rank}; };
  const auto [from_inner, from_outer] = swapped(steps);
  const int64_t to_outer = swapped(to_steps).feature;
  for (int64_t i = 0; i < outer; ++i) {
    To* const target = reinterpret_cast<To*>(to) + i * to_outer;
    const std::byte* const source = half.data + i * from_outer * int64_t{sizeof(From)};
    if (from_inner == 1 && std::is_same_v<To, From>) {
      std::memcpy(target, source, static_cast<size_t>(inner) * sizeof(To));
      continue;
    }
    for (int64_t j = 0; j < inner; ++j) {
      target[j] = converted<To, From>(source + j * from_inner * int64_t{sizeof(From)});
    }
  }
}

/// Writes the half as it shall lie in memory that is zero.
void lay_out(std::byte* to, const Half& half, const Target& target) {
  const Steps steps = steps_of(target.layout, target.row_stride);
  dispatch_dtype<float, heddle::half, bfloat16>(half.dtype, "an adapter", [&]<class From>() {
    dispatch_dtype<float, heddle::half, bfloat16>(
        target.dtype, "an adapter", [&]<class To>() { copy_elements<To, From>(to, steps, half); });
  });
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
    changes_.reserve(3 * added.weights_.size());  // so that none of it fails when it is taken out
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

/// Copies the weights of an adapter to one piece of host memory that is zero: memory(num_bytes).
LoraTables::Prepared LoraTables::lay_out(const ExecContext& ctx, const Adapter& adapter,
                                         std::span<const SliceAffine> affines,
                                         FunctionRef<std::byte*(size_t)> memory) const {
  const std::vector<Copy> halves = halves_of(adapter, dims_, form_);
  size_t num_bytes = 0;
  for (const Copy& copy : halves) num_bytes += padded(copy.target.num_bytes());
  const size_t begin_of_affines = num_bytes;
  for (const SliceAffine& affine : affines) num_bytes += std::span(affine.values).size_bytes();
  Prepared laid_out;
  laid_out.has_affines_ = !affines.empty();
  laid_out.is_used_ = true;
  std::byte* next = memory(num_bytes);
  std::byte* next_affine = next + begin_of_affines;
  const auto keep = [&](const Copy& copy) -> ConstTensorView {
    const auto& [half, target] = copy;
    std::byte* const place = std::exchange(next, next + padded(target.num_bytes()));
    model::lay_out(place, half, target);
    const bool rank_major = target.layout == LoraLayout::kRankMajor;
    const std::array<int64_t, 2> shape{target.rows, rank_major ? half.features : target.rank};
    const std::array<int64_t, 2> strides{target.row_stride, 1};
    return {place, target.dtype, ctx.device, shape, strides};
  };
  auto affine = affines.begin();
  const auto keep_affine = [&](const AdapterPair& pair, int projection) -> ConstTensorView {
    const auto p = static_cast<Projection>(static_cast<int>(pair.projection) + projection);
    if (affine == affines.end() || affine->layer != pair.layer || affine->projection != p) {
      return {};
    }
    const auto bytes = std::as_bytes(std::span((affine++)->values));
    std::byte* const place = std::exchange(next_affine, next_affine + bytes.size());
    std::ranges::copy(bytes, place);
    const int64_t width = dims_[p].out;
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
      laid_out.weights_.push_back({.site = pair.layer * kNumLoraSites + static_cast<int64_t>(site),
                                   .slice = slice,
                                   .slot = -1,
                                   .rank = rank,
                                   .scale = pair.scale,
                                   .a = a,
                                   .b = keep(*half++),
                                   .affine = keep_affine(pair, i)});
    }
  }
  return laid_out;
}

LoraTables::HostCopy LoraTables::stage(const ExecContext& ctx, const Adapter& adapter,
                                       std::span<const SliceAffine> affines,
                                       FunctionRef<StagingBytes(size_t)> memory) const {
  HostCopy copy;
  copy.prepared_ = lay_out(ctx, adapter, affines, [&](size_t num_bytes) {
    copy.num_bytes_ = num_bytes;
    copy.memory_ = memory(num_bytes);
    return copy.memory_.get();
  });
  return copy;
}

LoraTables::Prepared LoraTables::place(const ExecContext& ctx, const HostCopy& copy,
                                       DeviceBytes memory) {
  Prepared placed;
  placed.weights_ = copy.prepared_.weights_;
  placed.has_affines_ = copy.prepared_.has_affines_;
  placed.is_used_ = true;
  placed.memory_ = std::move(memory);
  const auto move = [&](ConstTensorView& view) {
    if (!view) return;
    const std::byte* const at = placed.memory_.get() + (view.raw() - copy.memory_.get());
    view = ConstTensorView(at, view.dtype(), ctx.device, view.shape(), view.strides());
  };
  for (Weights& w : placed.weights_) {
    for (ConstTensorView* view : {&w.a, &w.b, &w.affine}) move(*view);
  }
  begin_copy_from_host(ctx, placed.memory_.get(), {copy.memory_.get(), copy.num_bytes_});
  return placed;
}

LoraTables::Prepared LoraTables::prepare(const ExecContext& ctx, const Adapter& adapter,
                                         std::span<const SliceAffine> affines) const {
  if (ctx.device.type == DeviceType::kCpu) {
    DeviceBytes memory;
    Prepared prepared = lay_out(ctx, adapter, affines, [&](size_t num_bytes) {
      memory = allocate_zeroed(ctx.device, num_bytes, HostPages::kHuge);
      return memory.get();
    });
    prepared.memory_ = std::move(memory);
    return prepared;
  }
  const HostCopy staged =
      stage(ctx, adapter, affines, [](size_t num_bytes) { return StagingBytes({}, num_bytes); });
  Prepared prepared = place(ctx, staged, allocate_zeroed(ctx.device, staged.num_bytes()));
  DeviceEvent copied(ctx.device);
  copied.record(ctx);
  copied.wait();
  return prepared;
}

/// Tables of all adapters, with room to grow.
LoraTables::Tables LoraTables::make_tables(const ExecContext& ctx, int32_t max_rank) {
  Tables made{.sites = std::vector<Site>(tables_.sites.size()),
              .affines = AffineTables(tables_.sites.size()),
              .capacity = static_cast<int32_t>(std::bit_ceil(adapters_.size())),
              .max_rank = max_rank};
  for (const Loaded& adapter : adapters_) {
    changes_.clear();
    for (const Weights& w : adapter.weights_) {
      Site& site = made.sites[static_cast<size_t>(w.site)];
      if (find(site, w) == nullptr) add_table(ctx, site, w, made);
      add_changes(ctx, *find(site, w), w);
    }
    put_affines(ctx, adapter, made, made.affines);
    AdapterTable::apply(ctx, changes_);
  }
  return made;
}

/// Into the tables that there are, and into new ones, which come to `more`.
void LoraTables::put_affines(const ExecContext& ctx, const Loaded& adapter, Tables& tables,
                             AffineTables& more) {
  for (const Weights& w : adapter.weights_) {
    if (!w.affine) continue;
    const auto site = static_cast<size_t>(w.site);
    auto& table = tables.affines[site] ? tables.affines[site] : more[site];
    if (!table) {
      constexpr int32_t kMostRows = 2;  // factor and offset
      table = std::make_unique<AdapterTable>(ctx, tables.capacity, out_features(w.site), kMostRows,
                                             DType::kFloat32, LoraLayout::kRankMajor);
    }
    changes_.push_back(table->change(ctx, w.slot, w.slice, w.affine));
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
  changes_.clear();
  for (const Weights& w : adapter.weights_) {
    const auto site = static_cast<size_t>(w.site);
    SiteTable* table = find(tables_.sites[site], w);
    add_changes(ctx, table != nullptr ? *table : *find(more[site], w), w);
  }
  put_affines(ctx, adapter, tables_, more_affines);
  AdapterTable::apply(ctx, changes_);
  for (size_t i = 0; i < more.size(); ++i) {
    if (!more[i].empty() || more_affines[i]) ++version_;
    tables_.sites[i].merge(
        more[i], [](const SiteTable& x, const SiteTable& y) { return x.dtype < y.dtype; });
    if (more_affines[i]) tables_.affines[i] = std::move(more_affines[i]);
  }
}

/// Empties the adapter's slot, as far as the device still does what it is told.
void LoraTables::take_out(const ExecContext& ctx, const Loaded& adapter) noexcept {
  changes_.clear();
  try {
    for (const Weights& w : adapter.weights_) {
      if (SiteTable* table = find(tables_.sites[static_cast<size_t>(w.site)], w)) {
        changes_.push_back(table->a.change_to_none(ctx, w.slot, w.slice));
        changes_.push_back(table->b.change_to_none(ctx, w.slot, w.slice));
      }
      const auto& affines = tables_.affines[static_cast<size_t>(w.site)];
      if (affines && w.affine) {
        changes_.push_back(affines->change_to_none(ctx, w.slot, w.slice));
      }
    }
    AdapterTable::apply(ctx, changes_);
  } catch (const Error&) {  // what the device cannot clear it cannot run either
  }
}

void LoraTables::add_changes(const ExecContext& ctx, const SiteTable& table, const Weights& w) {
  changes_.push_back(table.a.change(ctx, w.slot, w.slice, w.a));
  changes_.push_back(table.b.change(ctx, w.slot, w.slice, w.b, w.scale));
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
