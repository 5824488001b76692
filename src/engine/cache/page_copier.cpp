#include "engine/cache/page_copier.h"

#include <algorithm>
#include <utility>

#include "heddle/core/cuda_context.h"

#include "core/device_bytes.h"

namespace heddle {
namespace {

/// Of pages: a mark after each would cost a seventh of the time in which one is copied.
constexpr uint64_t kCopiesOfAMark = 16;

}  // namespace

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

/// The first that comes after the copy, which is not known to be done.
DeviceEvent& DeviceCopier::mark(Copy copy) {
  Lane& of = lane(copy.way);
  if (copy.number > of.num_marked) add_mark(of);
  return std::ranges::lower_bound(of.marks, copy.number, {}, &Mark::number)->event;
}

/// After all copies that were begun.
void DeviceCopier::add_mark(Lane& lane) {
  if (lane.num_marked == lane.num_begun) return;
  if (spare_.empty()) spare_.emplace_back(steps_.device);
  spare_.back().record(context(lane));
  lane.marks.push_back({std::move(spare_.back()), lane.num_begun});
  spare_.pop_back();
  lane.num_marked = lane.num_begun;
}

/// What the lane does from here on waits for the steps that were launched.
void DeviceCopier::follow_steps(const Lane& lane) {
  launched_.record(steps_);
  launched_.hold(context(lane));
}

PageCopier::Copy DeviceCopier::copy_out(std::span<std::byte> to, const std::byte* from,
                                        bool after_steps) {
  const ScopedDevice on_device(steps_.device);
  if (after_steps) follow_steps(out_);
  begin_copy_to_host(context(out_), to, from);
  ++out_.num_begun;
  add_mark(out_);
  return {Way::kOut, out_.num_begun};
}

PageCopier::Copy DeviceCopier::copy_in(std::byte* to, std::span<const std::byte> from, Copy filled,
                                       bool after_steps) {
  const ScopedDevice on_device(steps_.device);
  if (after_steps) follow_steps(in_);
  if (!is_done(filled)) mark(filled).hold(context(in_));
  begin_copy_from_host(context(in_), to, from);
  ++in_.num_begun;
  if (in_.num_begun - in_.num_marked >= kCopiesOfAMark) add_mark(in_);
  return {Way::kIn, in_.num_begun};
}

void DeviceCopier::end_copies_in() {
  const ScopedDevice on_device(steps_.device);
  add_mark(in_);
}

bool DeviceCopier::is_done(Copy copy) {
  Lane& of = lane(copy.way);
  if (copy.number <= of.num_done) return true;
  const ScopedDevice on_device(steps_.device);
  if (copy.number > of.num_marked) add_mark(of);
  while (copy.number > of.num_done && of.marks.front().event.has_passed()) {
    of.num_done = of.marks.front().number;
    spare_.push_back(std::move(of.marks.front().event));
    of.marks.pop_front();
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
