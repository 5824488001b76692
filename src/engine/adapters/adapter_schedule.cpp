#include "engine/adapters/adapter_schedule.h"

#include <algorithm>
#include <ranges>
#include <span>

namespace heddle {
namespace {

constexpr int32_t kNone = -1;

class Scheduler {
 public:
  Scheduler(AdapterSchedule& schedule, const AdapterBounds& bounds)
      : s_(schedule), bounds_(bounds) {
    s_.marks.assign(s_.adapters.size(), {});
    s_.admissions.assign(s_.rows.size(), Admission::kWaits);
    for (auto* list : {&s_.reads, &s_.brings, &s_.evicts}) list->clear();
    for (int32_t i = 0; i < std::ssize(s_.adapters); ++i) {
      const ScheduledAdapter& adapter = s_.adapters[size_t(i)];
      if (adapter.num_running > 0 || adapter.stays) keep(i);
      if (adapter.num_running > 0) add_to_step(i);
      if (is_in(adapter)) num_bytes_in_ += adapter.num_bytes;
    }
  }

  void run() {
    for (size_t i = 0; i < s_.rows.size(); ++i) {
      s_.admissions[i] = schedule_row(i);
      for (const int32_t a : uses(i)) mark(a).is_wanted = true;
    }
    make_room();
  }

 private:
  using Marks = AdapterSchedule::Marks;

  static bool is_in(const ScheduledAdapter& adapter) {
    return adapter.stage == AdapterStage::kResident || adapter.stage == AdapterStage::kMoving;
  }
  [[nodiscard]] std::span<const int32_t> uses(size_t row) const {
    const auto [begin, end] = s_.rows[row];
    return std::span(s_.uses).subspan(size_t(begin), size_t(end - begin));
  }
  [[nodiscard]] const ScheduledAdapter& adapter(int32_t i) const { return s_.adapters[size_t(i)]; }
  [[nodiscard]] Marks& mark(int32_t i) { return s_.marks[size_t(i)]; }

  void keep(int32_t i) {
    mark(i).is_kept = true;
    kept_bytes_ += adapter(i).num_bytes;
  }
  void add_to_step(int32_t i) {
    mark(i).in_step = true;
    ++step_adapters_;
    step_bytes_ += adapter(i).num_bytes;
  }
  void list(std::vector<int32_t>& to, int32_t i) {
    if (mark(i).is_listed) return;
    mark(i).is_listed = true;
    to.push_back(i);
  }

  Admission schedule_row(size_t row) {
    int64_t wanted = 0;  // bytes that are not kept yet
    bool are_resident = true, waits_for_leaving = false;
    for (const int32_t a : uses(row)) {
      if (adapter(a).stage == AdapterStage::kStored) list(s_.reads, a);
      if (!mark(a).is_kept) wanted += adapter(a).num_bytes;
      are_resident &= adapter(a).stage == AdapterStage::kResident;
      waits_for_leaving |= mark(a).is_leaving;
    }
    if (waits_for_leaving) return Admission::kWaits;
    if (wanted > 0) {
      const int64_t missing = kept_bytes_ + wanted - bounds_.memory_bytes;
      if (lacks_memory_ || missing > 0) {
        if (!lacks_memory_ && num_kept_for_others() == 0) return Admission::kNever;
        if (!lacks_memory_) let_leave(row, {.memory = missing});
        lacks_memory_ = true;
        return Admission::kWaits;
      }
      for (const int32_t a : uses(row)) {
        if (!mark(a).is_kept) keep(a);
      }
    }
    for (const int32_t a : uses(row)) {
      if (adapter(a).stage == AdapterStage::kStaged) list(s_.brings, a);
    }
    return are_resident ? start(row) : Admission::kWaits;
  }

  /// Adapters that are kept now and may be evicted later.
  [[nodiscard]] int64_t num_kept_for_others() const {
    int64_t count = 0;
    for (size_t i = 0; i < s_.adapters.size(); ++i) {
      const bool may_go =
          !s_.adapters[i].stays || s_.adapters[i].num_running > 0 || s_.marks[i].is_wanted;
      count += s_.marks[i].is_kept && may_go ? 1 : 0;
    }
    return count;
  }

  struct Missing {
    int64_t memory = 0, step_adapters = 0, step_bytes = 0;
  };

  /// Of a row whose adapters are all resident.
  Admission start(size_t row) {
    int64_t more_adapters = 0, more_bytes = 0, num_own = 0;
    for (const int32_t a : uses(row)) {
      num_own += mark(a).in_step ? 1 : 0;
      more_adapters += mark(a).in_step ? 0 : 1;
      more_bytes += mark(a).in_step ? 0 : adapter(a).num_bytes;
    }
    const Missing missing{.step_adapters = more_adapters - (bounds_.step_adapters - step_adapters_),
                          .step_bytes = more_bytes - (bounds_.step_bytes - step_bytes_)};
    const bool is_alone = num_own == step_adapters_;
    const bool fits =
        more_adapters == 0 || is_alone || (missing.step_adapters <= 0 && missing.step_bytes <= 0);
    if (more_adapters > 0 && (exceeds_step_ || !fits)) {
      if (!exceeds_step_) let_leave(row, missing);
      exceeds_step_ = true;
      return Admission::kWaits;
    }
    for (const int32_t a : uses(row)) {
      if (!mark(a).in_step) add_to_step(a);
    }
    return Admission::kStarts;
  }

  /// From here on no row starts with as many adapters in use as it takes to make room.
  void let_leave(size_t row, Missing missing) {
    const auto is_own = [&](int32_t i) {
      return std::ranges::find(uses(row), i) != uses(row).end();
    };
    while (missing.memory > 0 || missing.step_adapters > 0 || missing.step_bytes > 0) {
      const int32_t oldest = oldest_of([&](int32_t i) {
        const Marks& m = mark(i);
        const bool frees_memory = !adapter(i).stays || missing.memory <= 0;
        return adapter(i).num_running > 0 && frees_memory && !m.is_wanted && !m.is_leaving &&
               !is_own(i);
      });
      if (oldest == kNone) return;
      mark(oldest).is_leaving = true;
      missing.memory -= adapter(oldest).num_bytes;
      missing.step_adapters -= 1;
      missing.step_bytes -= adapter(oldest).num_bytes;
    }
  }

  template <class Condition>
  [[nodiscard]] int32_t oldest_of(const Condition& may_be) const {
    int32_t oldest = kNone;
    for (int32_t i = 0; i < std::ssize(s_.adapters); ++i) {
      if (!may_be(i)) continue;
      if (oldest == kNone || adapter(i).last_used < adapter(oldest).last_used) oldest = i;
    }
    return oldest;
  }

  /// Lists what to evict so that what is listed to move fits, as far as it can.
  void make_room() {
    for (size_t i = 0; i < s_.brings.size(); ++i) {
      num_bytes_in_ += adapter(s_.brings[i]).num_bytes;
      while (num_bytes_in_ > bounds_.memory_bytes) {
        const int32_t oldest = oldest_of([&](int32_t a) {
          return adapter(a).stage == AdapterStage::kResident && !mark(a).is_kept &&
                 !mark(a).is_listed;
        });
        if (oldest == kNone)
          return s_.brings.resize(i);  // a move that no row waits for must end first
        list(s_.evicts, oldest);
        num_bytes_in_ -= adapter(oldest).num_bytes;
      }
    }
  }

  AdapterSchedule& s_;
  const AdapterBounds& bounds_;
  int64_t kept_bytes_ = 0, step_adapters_ = 0, step_bytes_ = 0;
  int64_t num_bytes_in_ = 0;
  bool lacks_memory_ = false, exceeds_step_ = false;  // a row that waits does
};

}  // namespace

void AdapterSchedule::reserve(size_t num_adapters, size_t num_uses, size_t num_rows) {
  adapters.reserve(num_adapters);
  uses.reserve(num_uses);
  for (auto* list : {&reads, &brings, &evicts}) list->reserve(num_adapters);
  marks.reserve(num_adapters);
  rows.reserve(num_rows);
  admissions.reserve(num_rows);
}

void AdapterSchedule::clear() {
  adapters.clear();
  uses.clear();
  rows.clear();
}

void schedule_adapters(AdapterSchedule& schedule, const AdapterBounds& bounds) {
  Scheduler(schedule, bounds).run();
}

}  // namespace heddle
