#pragma once

namespace heddle::app {

/// While it lives, the first SIGINT, SIGTERM or SIGHUP does not end the process but is reported
/// here; a second one ends it. A SIGHUP that is ignored, as under nohup, stays ignored. There is
/// one at a time.
class StopSignal {
 public:
  /// Ends what cannot end in another way, such as the load of a model. No std::exception, so that
  /// no handler takes it for a failure.
  struct Stopped {
    int signal;
  };
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// The signal that came, 0: none.
  [[nodiscard]] int received() const;
  /// Throws Stopped where one came.
  void check() const;
  /// Waits until `fd` is readable or a signal has come.
  void wait_for(int fd) const;
};

}  // namespace heddle::app
