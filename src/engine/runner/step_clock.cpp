#include "engine/runner/step_clock.h"

namespace heddle {

StepClock::StepClock(Device device) : marks_{{Marks(device), Marks(device), Marks(device)}} {}

void StepClock::begin(const ExecContext& ctx) {
  Marks& step = marks_[num_ended_ % marks_.size()];
  step.follows = num_ended_ > num_counted_;
  step.begin.record(ctx);
}

void StepClock::end(const ExecContext& ctx) {
  marks_[num_ended_ % marks_.size()].end.record(ctx);
  ++num_ended_;
}

void StepClock::count() {
  if (num_counted_ == num_ended_) return;
  const Marks& step = marks_[num_counted_ % marks_.size()];
  busy_seconds_ += step.end.seconds_since(step.begin);
  if (step.follows) {
    const Marks& before = marks_[(num_counted_ - 1) % marks_.size()];
    gap_seconds_ += step.begin.seconds_since(before.end);
  }
  ++num_counted_;
}

}  // namespace heddle
