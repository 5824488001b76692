#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/rows/admission.h"
#include "engine/runner/device_adapters.h"

namespace heddle {

/// What the scheduler sees of an adapter: of those that are resident or moving, and of those that
/// waiting rows want.
struct ScheduledAdapter {
  int64_t num_bytes = 0;
  AdapterStage stage = AdapterStage::kStored;
  bool stays = false;       // it is never evicted
  int64_t num_running = 0;  // rows that run with it
  uint64_t last_used = 0;   // when a row last started with it; larger is later
};

/// A row that waits: its adapters are uses[begin, end) of the schedule.
struct ScheduledRow {
  int32_t begin = 0, end = 0;
};

struct AdapterBounds {
  int64_t memory_bytes = 0;  // of all adapters that are resident or moving
  // Of the adapters of the rows that run, unless a row needs more and is alone.
  int64_t step_adapters = std::numeric_limits<int64_t>::max();
  int64_t step_bytes = std::numeric_limits<int64_t>::max();
};

/// Which adapters are read, moved to the device and evicted, and which rows start. Numbers are
/// indices of `adapters`.
struct AdapterSchedule {
  // In:
  std::vector<ScheduledAdapter> adapters{};
  std::vector<int32_t> uses{};       // no number twice in a row
  std::vector<ScheduledRow> rows{};  // that wait, in the order in which they would start
  // Out:
  std::vector<Admission> admissions{};  // [rows.size()]
  std::vector<int32_t> reads{};         // of kStored, in the order in which to read them
  std::vector<int32_t> brings{};  // of kStaged, in the same way; all fit once `evicts` are evicted
  std::vector<int32_t> evicts{};  // in the order in which to evict them
  /// What the functions note of each adapter.
  struct Marks {
    bool is_kept = false;     // in use, or for a row that waits
    bool is_wanted = false;   // by an earlier row that waits
    bool in_step = false;     // of a row that runs or starts
    bool is_leaving = false;  // no row starts with it, so that it can make room
    bool is_listed = false;
  };
  std::vector<Marks> marks{};

  /// Reserves memory for so much, so that schedule_adapters allocates none.
  void reserve(size_t num_adapters, size_t num_uses, size_t num_rows);
  void clear();
};

/// Fills in what follows from what is known; the same for the same input.
///
/// Adapters are kept for the rows in their order as long as memory holds them. One that is kept for
/// no row and that no row runs with is evicted for others, the least recently used first. A row
/// starts when its adapters are resident: it need not wait for one before it whose adapters are
/// not. For the first row that finds no room, adapters in use leave: no row starts with them any
/// more, again from the least recently used on, until there is room for it when the rows that run
/// with them have ended. A row that starts makes its adapters the most recently used, so these stay
/// the same until then, and no row waits forever. The bounds of a step are kept in the same way.
void schedule_adapters(AdapterSchedule& schedule, const AdapterBounds& bounds);

}  // namespace heddle
