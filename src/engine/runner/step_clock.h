#pragma once

#include <array>
#include <cstddef>

#include "core/device_graph.h"

namespace heddle {

/// When the device begins and ends to compute steps that overlap, by marks on their stream. Copies
/// to the device and back lie outside. On the CPU nothing is measured.
class StepClock {
 public:
  explicit StepClock(Device device);

  /// Before and after the calls of a step. One without `end`, whose launch failed, is not counted.
  void begin(const ExecContext& ctx);
  void end(const ExecContext& ctx);
  /// Counts the first of the steps that were not counted, which must be done. Does nothing where
  /// there is none.
  void count();

  [[nodiscard]] double busy_seconds() const { return busy_seconds_; }
  /// Idle time from the end of a step to the beginning of the next one, where that was launched
  /// before the first was counted.
  [[nodiscard]] double gap_seconds() const { return gap_seconds_; }

 private:
  struct Marks {
    explicit Marks(Device device)
        : begin(DeviceEvent::timed(device)), end(DeviceEvent::timed(device)) {}
    DeviceEvent begin, end;
    bool follows = false;  // it was launched while another was not counted
  };

  // Two steps may be in flight; the previous one is where the gap begins.
  std::array<Marks, 3> marks_;
  size_t num_ended_ = 0, num_counted_ = 0;
  double busy_seconds_ = 0, gap_seconds_ = 0;
};

}  // namespace heddle
