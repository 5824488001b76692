#pragma once

#include <array>
#include <cstddef>

#include "core/device_graph.h"

namespace heddle {

/// When the device begins and ends what it computes in steps that are asked for one ahead, by marks
/// on their stream. Copies to the device and back lie outside. On the CPU nothing is measured.
class StepClock {
 public:
  explicit StepClock(Device device);

  /// Before and behind the calls of a step. One whose `end` does not come is no step.
  void begin(const ExecContext& ctx);
  void end(const ExecContext& ctx);
  /// Counts the first of the steps that were not counted, which must be done. Nothing without one.
  void count();

  [[nodiscard]] double busy_seconds() const { return busy_seconds_; }
  /// From the end of a step to the beginning of the one behind it, in which nothing is computed,
  /// where that was asked for before the first was counted.
  [[nodiscard]] double gap_seconds() const { return gap_seconds_; }

 private:
  struct Marks {
    explicit Marks(Device device)
        : begin(DeviceEvent::timed(device)), end(DeviceEvent::timed(device)) {}
    DeviceEvent begin, end;
    bool follows = false;  // it was asked for while another was not counted
  };

  // Two steps may be under way; the one in front of them tells the gap.
  std::array<Marks, 3> marks_;
  size_t num_ended_ = 0, num_counted_ = 0;
  double busy_seconds_ = 0, gap_seconds_ = 0;
};

}  // namespace heddle
