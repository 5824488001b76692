#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/rows/admission.h"

namespace heddle {

/// Where the weights of an adapter are.
enum class AdapterPlace : uint8_t {
  kAway,     // they must be read before they can be brought in
  kReading,  // that is under way
  kAtHand,   // they can be brought in
  kComing,   // that is under way; they have their memory
  kThere,
};

/// What the scheduler sees of an adapter: of all that are there or coming, and of those that the
/// rows want.
struct PlannedAdapter {
  int64_t num_bytes = 0;
  AdapterPlace place = AdapterPlace::kAway;
  bool stays = false;       // it never makes room for others
  int64_t num_running = 0;  // rows that run with it
  uint64_t last_used = 0;   // when a row last started with it; larger is later
};

/// A row that waits: its adapters are uses[begin, end) of the plan.
struct PlannedRow {
  int32_t begin = 0, end = 0;
};

struct AdapterBounds {
  int64_t memory_bytes = 0;  // of all adapters that are there or coming
  // Of the adapters of the rows that run, unless a row needs more and is alone.
  int64_t step_adapters = std::numeric_limits<int64_t>::max();
  int64_t step_bytes = std::numeric_limits<int64_t>::max();
};

/// Which adapters come into memory, which go, and which rows start. Numbers are indices of
/// `adapters`.
struct AdapterPlan {
  // In:
  std::vector<PlannedAdapter> adapters{};
  std::vector<int32_t> uses{};     // no number twice in a row
  std::vector<PlannedRow> rows{};  // that wait, the oldest first
  // Out:
  std::vector<Admission> row_plans{};  // [rows.size()]
  std::vector<int32_t> reads{};        // of kAway, in the order in which they shall be read
  std::vector<int32_t> brings{};       // of kAtHand, likewise; all fit once `evicts` have gone
  std::vector<int32_t> evicts{};       // in the order in which they shall go
  /// What the functions note of each adapter.
  struct Marks {
    bool is_kept = false;     // in use, or for a row that waits
    bool is_wanted = false;   // by an older row that waits
    bool in_step = false;     // of a row that runs or starts
    bool is_leaving = false;  // no row starts with it, so that it can make room
    bool is_listed = false;
  };
  std::vector<Marks> marks{};

  /// Room for so much, so that plans ask for no memory.
  void reserve(size_t num_adapters, size_t num_uses, size_t num_rows);
  void clear();
};

/// Fills in what the plan says from what is known; the same for the same input.
///
/// Adapters are kept for the rows in their order as long as memory holds them, and what nobody runs
/// with and is kept for nobody makes room, the one used the longest ago first. A row starts when
/// its adapters are there: it need not wait for an older one whose adapters are not. For the first
/// row that finds no room, adapters in use leave: no row starts with them any more, again from
/// the one used the longest ago on, until there is room for it when the rows that run with them
/// have ended. A row that starts makes its adapters the latest ones, so these stay the same until
/// then, and no row waits forever. The bounds of a step are kept in the same way.
void plan_adapters(AdapterPlan& plan, const AdapterBounds& bounds);

}  // namespace heddle
