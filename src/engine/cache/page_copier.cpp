#include "engine/cache/page_copier.h"

#include <utility>

#include "heddle/core/cuda_context.h"

#include "core/device_bytes.h"

namespace heddle {

DeviceCopier::DeviceCopier(const ExecContext& steps)
    : steps_(steps),
      launched_([&] {
        const ScopedDevice on_device(steps.device);
        return DeviceEvent(steps.device);
      }()),
      out_(steps.device),
      in_(steps.device) {}

ExecContext DeviceCopier::context(const Lane& lane) const {
  return {.device = steps_.device, .info = steps_.info, .stream = lane.stream.get()};
}

DeviceEvent& DeviceCopier::mark(Copy copy) {
  Lane& of = lane(copy.way);
  return of.marks[static_cast<size_t>(copy.number - of.num_done - 1)];
}

/// What the lane does from here on waits for the steps that were launched.
void DeviceCopier::follow_steps(const Lane& lane) {
  launched_.record(steps_);
  launched_.hold(context(lane));
}

DeviceEvent DeviceCopier::event() {
  if (spare_.empty()) return DeviceEvent(steps_.device);
  DeviceEvent last = std::move(spare_.back());
  spare_.pop_back();
  return last;
}

/// The copy that was just begun has a number.
PageCopier::Copy DeviceCopier::finish(Way way, DeviceEvent event) {
  Lane& of = lane(way);
  event.record(context(of));
  of.marks.push_back(std::move(event));
  return {way, ++of.num_begun};
}

PageCopier::Copy DeviceCopier::copy_out(std::span<std::byte> to, const std::byte* from,
                                        bool after_steps) {
  const ScopedDevice on_device(steps_.device);
  DeviceEvent done = event();
  if (after_steps) follow_steps(out_);
  begin_copy_to_host(context(out_), to, from);
  return finish(Way::kOut, std::move(done));
}

PageCopier::Copy DeviceCopier::copy_in(std::byte* to, std::span<const std::byte> from, Copy filled,
                                       bool after_steps) {
  const ScopedDevice on_device(steps_.device);
  DeviceEvent done = event();
  if (after_steps) follow_steps(in_);
  if (!is_done(filled)) mark(filled).hold(context(in_));
  begin_copy_from_host(context(in_), to, from);
  return finish(Way::kIn, std::move(done));
}

bool DeviceCopier::is_done(Copy copy) {
  Lane& of = lane(copy.way);
  if (copy.number <= of.num_done) return true;
  const ScopedDevice on_device(steps_.device);
  while (copy.number > of.num_done && of.marks.front().has_passed()) {
    spare_.push_back(std::move(of.marks.front()));
    of.marks.pop_front();
    ++of.num_done;
  }
  return copy.number <= of.num_done;
}

void DeviceCopier::wait(Copy copy) {
  if (is_done(copy)) return;
  const ScopedDevice on_device(steps_.device);
  mark(copy).wait();
}

void DeviceCopier::hold_steps(Copy copy) {
  if (is_done(copy)) return;
  const ScopedDevice on_device(steps_.device);
  mark(copy).hold(steps_);
}

}  // namespace heddle
