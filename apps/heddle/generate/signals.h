#pragma once

namespace heddle::app {

/// While it lives, the first SIGINT or SIGTERM does not end the process but is told here; a second
/// one ends it. There is one at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// The signal that came, 0: none.
  [[nodiscard]] int received() const;
  /// Waits until `fd` is readable or a signal has come.
  void wait_for(int fd) const;
};

}  // namespace heddle::app
