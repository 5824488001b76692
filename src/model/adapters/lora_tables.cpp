#include "model/adapters/lora_tables.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/device_graph.h"
#include "model/adapters/load_threads.h"

namespace heddle::model {

LoraTables::LoraTables(const ModelDims& dims, const LoraForm& form)
    : dims_(dims),
      form_(form),
      tables_{.sites =
                  std::vector<Site>(static_cast<size_t>(dims.num_layers) * dims.block.sites.size()),
              .affines = AffineTables(tables_.sites.size())} {}

int LoraTables::fitting_rank(int64_t rank) const {
  return static_cast<int>(AdapterTable::fitting_rank(rank, form_.fit));
}

int64_t LoraTables::num_bytes(const Adapter& adapter) const {
  return static_cast<int64_t>(model::num_bytes(halves_of(adapter, dims_.block, form_)));
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
    changes_.reserve(3 * added.weights_.size());  // so that take_out never allocates
    int32_t max_rank = tables_.max_rank;
    for (Weights& w : added.weights_) {
      w.slot = slot;
      max_rank = std::max(max_rank, w.rank);
    }
    // Slots and rank of a table are fixed: when one of them has to grow, all tables are remade.
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

const LoraTables::Site& LoraTables::site(int64_t layer, int site) const {
  return tables_.sites[static_cast<size_t>(index_of(layer, site))];
}

const AdapterTable* LoraTables::affines(int64_t layer, int site) const {
  return tables_.affines[static_cast<size_t>(index_of(layer, site))].get();
}

/// Copies the weights of an adapter to one piece of host memory, memory(num_bytes).
LoraTables::Prepared LoraTables::lay_out(const ExecContext& ctx, const Adapter& adapter,
                                         std::span<const SliceAffine> affines,
                                         FunctionRef<std::byte*(size_t)> memory) const {
  const BlockShape& block = dims_.block;
  const std::vector<AdapterHalf> halves = halves_of(adapter, block, form_);
  const size_t begin_of_affines = model::num_bytes(halves);
  size_t num_bytes = begin_of_affines;
  for (const SliceAffine& affine : affines) num_bytes += std::span(affine.values).size_bytes();
  Prepared laid_out;
  laid_out.has_affines_ = !affines.empty();
  laid_out.is_used_ = true;
  std::byte* next = memory(num_bytes);
  std::byte* next_affine = next + begin_of_affines;
  std::vector<std::byte*> places;
  const auto keep = [&](const AdapterHalf& half) {
    std::byte* const place = std::exchange(next, next + half.num_bytes());
    places.push_back(place);
    return half.view(place, ctx.device);
  };
  auto affine = affines.begin();
  const auto keep_affine = [&](int64_t layer, int slice) -> ConstTensorView {
    if (affine == affines.end() || affine->layer != layer || affine->slice != slice) return {};
    const auto bytes = std::as_bytes(std::span((affine++)->values));
    std::byte* const place = std::exchange(next_affine, next_affine + bytes.size());
    std::ranges::copy(bytes, place);
    const int64_t width = block.slice(slice).dims.out;
    return {place,
            DType::kFloat32,
            ctx.device,
            {std::ssize(bytes) / (width * int64_t{sizeof(float)}), width}};
  };
  auto half = halves.begin();
  for (const AdapterPair& pair : adapter.pairs()) {
    const auto rank = static_cast<int32_t>(half->rank);
    const ConstTensorView a = keep(*half++);
    const auto [first, count] = block.find(*pair.module);
    const int site = block.site_of(first);
    for (int i = first; i < first + count; ++i) {
      laid_out.weights_.push_back({.site = index_of(pair.layer, site),
                                   .slice = i - block.site(site).first,
                                   .slot = -1,
                                   .rank = rank,
                                   .scale = pair.scale,
                                   .a = a,
                                   .b = keep(*half++),
                                   .affine = keep_affine(pair.layer, i)});
    }
  }
  parallel_load(num_bytes, halves.size(), [&](size_t i) { halves[i].write(places[i]); });
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

/// Into the existing tables; new ones are added to `more`.
void LoraTables::put_affines(const ExecContext& ctx, const Loaded& adapter, Tables& tables,
                             AffineTables& more) {
  for (const Weights& w : adapter.weights_) {
    if (!w.affine) continue;
    const auto site = static_cast<size_t>(w.site);
    auto& table = tables.affines[site] ? tables.affines[site] : more[site];
    if (!table) {
      constexpr int32_t kMaxRows = 2;  // factor and offset
      table =
          std::make_unique<AdapterTable>(ctx, tables.capacity, features(w.site, &LinearDims::out),
                                         kMaxRows, DType::kFloat32, LoraLayout::kRankMajor);
    }
    changes_.push_back(table->change(ctx, w.slot, w.slice, w.affine));
  }
}

/// Puts an adapter into the existing tables, and into new ones where it is the first of its dtype
/// at a site.
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

/// Clears the adapter's slot, as far as the device still executes calls.
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
  const DType dtype = weights.a.dtype();
  const auto next = std::ranges::find_if(to, [&](const SiteTable& t) { return t.dtype > dtype; });
  to.emplace(next, ctx, size.capacity, features(weights.site, &LinearDims::in),
             features(weights.site, &LinearDims::out), size.max_rank, dtype, form_);
}

/// Of the slices of a site.
std::vector<int64_t> LoraTables::features(int64_t index, int64_t LinearDims::*which) const {
  const BlockShape& block = dims_.block;
  const BlockSite& site = block.site(static_cast<int>(index % block.num_sites()));
  std::vector<int64_t> features;
  for (int i = site.first; i < site.first + site.count; ++i) {
    features.push_back(block.slice(i).dims.*which);
  }
  return features;
}

}  // namespace heddle::model
