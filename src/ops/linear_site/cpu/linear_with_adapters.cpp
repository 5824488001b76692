#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "heddle/core/check.h"
#include "heddle/core/validate.h"
#include "heddle/ops/linear_site.h"

#include "core/pause_cpu.h"
#include "ops/linear/linear_units.h"
#include "ops/linear_site/call/site_slices.h"
#include "ops/lora_device/checks/check_call.h"
#include "ops/lora_device/cpu/site_products.h"

namespace heddle {
namespace {

/// Adds up the time that the threads of a call spend on the adapters.
class AdapterTimer {
 public:
  explicit AdapterTimer(bool is_wanted) : is_wanted_(is_wanted) {}
  template <class Part>
  void time(Part&& part) {
    if (!is_wanted_) return part();
    const auto begin = std::chrono::steady_clock::now();
    part();
    ticks_.fetch_add((std::chrono::steady_clock::now() - begin).count(), std::memory_order_relaxed);
  }
  [[nodiscard]] double seconds() const {
    const std::chrono::steady_clock::duration spent(ticks_.load(std::memory_order_relaxed));
    return std::chrono::duration<double>(spent).count();
  }

 private:
  bool is_wanted_;
  std::atomic<std::chrono::steady_clock::rep> ticks_{0};
};

/// The parallel section of a site. The outputs are cut into parts; the threads take the first half
/// of them, each with some of the shrinks after its product, then the second half, each with the
/// expands of its own outputs and of some of the first half's. An expand waits until the first half
/// is done. It never waits long: chunks of a section begin in ascending order, so all of those are
/// at work by then, and wait for nothing themselves. On the way through a product's weights a
/// thread prefetches those of the adapters that it needs after it.
class Section {
 public:
  Section(const ExecContext& ctx, std::span<const LinearOutput> outputs, const LinearInput& input,
          SiteProducts& products, int64_t num_units, AdapterTimer& timer)
      : ctx_(ctx),
        outputs_(outputs),
        input_(input),
        products_(products),
        timer_(timer),
        num_units_(num_units),
        part_units_(std::max<int64_t>(1, num_units / (int64_t{num_threads(ctx)} * 4))),
        num_parts_(ceil_div(num_units, part_units_)),
        num_first_(ceil_div(num_parts_, 2)),
        num_second_(std::max<int64_t>(1, num_parts_ - num_first_)),
        num_shrinks_(products.cut_shrink(ctx)),
        first_left_(static_cast<uint32_t>(num_first_)) {}

  void run() {
    parallel_for(ctx_, num_first_ + num_second_, 1, [this](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        i < num_first_ ? run_first(i) : run_second(i - num_first_);
      }
    });
  }

 private:
  void run_first(int64_t i) {
    const LoraProduct& shrink = products_.shrink();
    const int64_t begin = num_shrinks_ * i / num_first_, end = num_shrinks_ * (i + 1) / num_first_;
    cpu::FetchAhead ahead;
    add_items(ahead, shrink, begin, end);
    multiply(i, ahead);
    timer_.time([&] { cpu::lora::run_product_items(shrink, begin, end); });
    first_left_.fetch_sub(1, std::memory_order_acq_rel);
  }

  void run_second(int64_t i) {
    const LoraProduct& expand = products_.expand();
    const int64_t own = num_first_ + i;
    const int64_t begin = num_first_ * i / num_second_, end = num_first_ * (i + 1) / num_second_;
    const auto for_parts = [&](auto&& f) {
      if (own < num_parts_) for_columns(own, own + 1, f);
      for_columns(begin, end, f);
    };
    cpu::FetchAhead ahead;
    for_parts([&](int slice, int64_t first, int64_t last) {
      add_columns(ahead, expand, slice, first, last);
    });
    if (own < num_parts_) multiply(own, ahead);
    wait_for_first();
    timer_.time([&] {
      for_parts([&](int slice, int64_t first, int64_t last) {
        cpu::lora::run_product_columns(expand, slice, first, last);
      });
    });
  }

  void multiply(int64_t part, cpu::FetchAhead& ahead) {
    const int64_t begin = part * part_units_, end = std::min(begin + part_units_, num_units_);
    int64_t steps = 0;
    for_units(outputs_, begin, end, [&](size_t i, int64_t first, int64_t last) {
      steps += num_steps(outputs_[i], first, last);
    });
    ahead.start(steps);
    for_units(outputs_, begin, end, [&](size_t i, int64_t first, int64_t last) {
      run_units(outputs_[i], input_, first, last, &ahead);
    });
  }

  /// f(slice, begin, end) for the columns of the parts [begin, end).
  template <class F>
  void for_columns(int64_t begin, int64_t end, F& f) const {
    const int64_t last_unit = std::min(end * part_units_, num_units_);
    for_units(outputs_, begin * part_units_, last_unit, [&](size_t i, int64_t first, int64_t last) {
      f(static_cast<int>(i), first * kUnitOutputs,
        std::min(last * kUnitOutputs, outputs_[i].weight.out_features));
    });
  }

  /// Spins for some microseconds, then lets others have the processor: whom it waits for may have
  /// lost it.
  void wait_for_first() const {
    constexpr int kSpins = 500;
    for (int i = 0; first_left_.load(std::memory_order_acquire) != 0; ++i) {
      i < kSpins ? pause_cpu() : std::this_thread::yield();
    }
  }

  const ExecContext& ctx_;
  std::span<const LinearOutput> outputs_;
  const LinearInput& input_;
  SiteProducts& products_;
  AdapterTimer& timer_;
  int64_t num_units_, part_units_, num_parts_;
  int64_t num_first_, num_second_;  // parts of each half
  int64_t num_shrinks_;
  std::atomic<uint32_t> first_left_;
};

}  // namespace

void linear_with_adapters(const ExecContext& ctx, std::span<const LinearOutput> outputs,
                          ConstTensorView x, const LinearAdapters& adapters,
                          double* adapter_seconds, LinearActivations activations) {
  const auto& [a, b, batch] = adapters;
  HEDDLE_CHECK(outputs.size() <= size_t{kMaxSiteSlices}, "linear_with_adapters: ", outputs.size(),
               " outputs, expected at most ", size_t{kMaxSiteSlices});
  const int64_t units = check_linear(ctx, outputs, x);
  std::array<LoraSlice, size_t{kMaxSiteSlices}> memory;
  std::ranges::transform(outputs, memory.begin(), [](const auto& o) { return LoraSlice{o.y}; });
  const auto slices = std::span(memory).first(outputs.size());
  check_apply(ctx, slices, x, a, b, batch);

  AdapterTimer timer(adapter_seconds != nullptr);
  RowGroups groups;
  // Where the batch is validated, lora_apply does it.
  const bool is_one_section = units > 0 && x.size(0) <= kWindowRows && x.size(1) > 0 &&
                              a.max_rank > 0 && !batch.pair_starts && !validating();
  if (is_one_section) group_rows(batch, 0, static_cast<int>(x.size(0)), a.num_slots, groups);
  if (is_one_section && groups.num_tiles > 0) {
    Workspace& workspace = require_workspace(ctx, "linear_with_adapters");
    const Workspace::Scope scope(workspace);
    const LoraSite site{.slices = slices, .input = x, .a = &a, .b = &b};
    SiteProducts products(workspace, site);
    products.open_window(batch, groups, 0);
    const LinearInput input(ctx, outputs, x, activations);
    Section(ctx, outputs, input, products, units, timer).run();
  } else {
    linear(ctx, outputs, x, activations);
    if (!is_one_section) timer.time([&] { lora_apply(ctx, slices, x, a, b, batch); });
  }
  if (adapter_seconds == nullptr) return;
  *adapter_seconds += timer.seconds() / (is_one_section ? num_threads(ctx) : 1);
}

}  // namespace heddle
