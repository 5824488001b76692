#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "core/device_graph.h"
#include "core/device_stream.h"

namespace heddle {

/// Copies pages between the memory of a device and that of the host while steps run: those that
/// go out in one order, those that come in in another one.
class PageCopier {
 public:
  enum class Way : uint8_t { kOut, kIn };
  struct Copy {
    Way way = Way::kOut;
    uint64_t number = 0;  // in the order of its way; 0: none, which is done
  };
  virtual ~PageCopier() = default;

  /// Begins a copy to the host of bytes that steps have written which are done; with after_steps,
  /// of what those write that were launched.
  virtual Copy copy_out(std::span<std::byte> to, const std::byte* from, bool after_steps) = 0;
  /// Begins a copy to the device of bytes that `filled` has written; with after_steps, over what
  /// the steps that were launched still read or write, as do the copies in that follow it.
  virtual Copy copy_in(std::byte* to, std::span<const std::byte> from, Copy filled,
                       bool after_steps) = 0;
  [[nodiscard]] virtual bool is_done(Copy copy) = 0;
  virtual void wait(Copy copy) = 0;
  /// Steps that are launched from here on begin after the copy.
  virtual void hold_steps(Copy copy) = 0;

 protected:
  PageCopier() = default;
  PageCopier(const PageCopier&) = default;
  PageCopier& operator=(const PageCopier&) = default;
};

/// Of a GPU, on two streams of its own. On the CPU a copy is done when it was begun.
class DeviceCopier final : public PageCopier {
 public:
  /// steps: the context of the steps, whose stream outlives the copier.
  explicit DeviceCopier(const ExecContext& steps);

  Copy copy_out(std::span<std::byte> to, const std::byte* from, bool after_steps) override;
  Copy copy_in(std::byte* to, std::span<const std::byte> from, Copy filled,
               bool after_steps) override;
  [[nodiscard]] bool is_done(Copy copy) override;
  void wait(Copy copy) override;
  void hold_steps(Copy copy) override;

 private:
  struct Lane {
    explicit Lane(Device device) : stream(make_stream(device)) {}

    DeviceStream stream;
    std::deque<DeviceEvent> marks{};  // after the copies that are not known to be done
    uint64_t num_begun = 0, num_done = 0;
  };
  [[nodiscard]] Lane& lane(Way way) { return way == Way::kOut ? out_ : in_; }
  [[nodiscard]] DeviceEvent& mark(Copy copy);
  [[nodiscard]] ExecContext context(const Lane& lane) const;
  void follow_steps(const Lane& lane);
  Copy finish(Way way, DeviceEvent event);
  [[nodiscard]] DeviceEvent event();

  ExecContext steps_;
  DeviceEvent launched_;  // steps, so far
  Lane out_, in_;
  std::vector<DeviceEvent> spare_;
};

}  // namespace heddle
