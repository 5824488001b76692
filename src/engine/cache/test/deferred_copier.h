#pragma once

#include <algorithm>
#include <array>
#include <deque>

#include "engine/cache/page_copier.h"
#include "random.h"

namespace heddle::testing {

/// Copies that are done some time after they were begun: whoever writes over what they read, or
/// reads what they have not written yet, has other bytes.
class DeferredCopier final : public PageCopier {
 public:
  /// Of 100 times that it is asked whether a copy is done, in so many another one is. Without
  /// has_steps there are no steps that wait for a copy, but copies in that wait for steps.
  explicit DeferredCopier(int per_cent = 30, bool has_steps = true)
      : per_cent_(per_cent), has_steps_(has_steps) {}

  void set_per_cent(int per_cent) { per_cent_ = per_cent; }

  Copy copy_out(std::span<std::byte> to, const std::byte* from, bool /*after_steps*/) override {
    return begin(Way::kOut, {.to = to.data(), .from = {from, to.size()}});
  }
  Copy copy_in(std::byte* to, std::span<const std::byte> from, Copy filled,
               bool after_steps) override {
    return begin(Way::kIn,
                 {.to = to, .from = from, .filled = filled, .held = after_steps ? held_ : Copy{}});
  }
  bool is_done(Copy copy) override {
    if (random_int(0, 99) < per_cent_ && !of(copy.way).pending.empty()) do_next(copy.way);
    return copy.number <= of(copy.way).num_done;
  }
  void wait(Copy copy) override {
    while (copy.number > of(copy.way).num_done) do_next(copy.way);
  }
  void hold_steps(Copy copy) override {
    held_ = copy;
    if (has_steps_) wait(copy);
  }

 private:
  struct Pending {
    std::byte* to;
    std::span<const std::byte> from;
    Copy filled{};
    Copy held{};  // what the steps wait for that it waits for
  };
  struct Lane {
    std::deque<Pending> pending;
    uint64_t num_begun = 0, num_done = 0;
  };
  Lane& of(Way way) { return lanes_[static_cast<size_t>(way)]; }
  Copy begin(Way way, const Pending& pending) {
    of(way).pending.push_back(pending);
    return {way, ++of(way).num_begun};
  }
  void do_next(Way way) {
    const Pending next = of(way).pending.front();
    wait(next.filled);
    wait(next.held);
    std::ranges::copy(next.from, next.to);
    of(way).pending.pop_front();
    ++of(way).num_done;
  }

  int per_cent_;
  bool has_steps_;
  Copy held_{};
  std::array<Lane, 2> lanes_;
};

}  // namespace heddle::testing
