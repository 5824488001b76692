#pragma once

#include <csignal>
#include <future>
#include <thread>

namespace heddle::app {

/// Takes the signals of a terminal as values, so that they are met where the program looks for them
/// and nowhere else: ctrl-C stops an answer and not the program. While one lives, its signals are
/// blocked in this thread and in those that it starts.
class ChatSignals {
 public:
  ChatSignals();
  ~ChatSignals();
  ChatSignals(const ChatSignals&) = delete;
  ChatSignals& operator=(const ChatSignals&) = delete;

  /// The next signal that has arrived, 0 when there is none. Does not wait.
  [[nodiscard]] int take() const;
  /// Waits until `file` can be read (true) or a signal has arrived (false).
  [[nodiscard]] bool wait_for_input(int file) const;
  /// Does what ctrl-Z usually does: returns when the program is continued.
  void suspend() const;

 private:
  sigset_t taken_, before_;
  int file_;
};

/// While one lives, the signals do what they usually do: a thread that does not block them takes
/// them.
/// For work that does not look for them.
class UsualSignals {
 public:
  UsualSignals();
  ~UsualSignals();
  UsualSignals(const UsualSignals&) = delete;
  UsualSignals& operator=(const UsualSignals&) = delete;

 private:
  std::promise<void> end_;
  std::thread thread_;
};

/// Whether the signal asks the program to end.
[[nodiscard]] constexpr bool ends_program(int signal) {
  return signal == SIGTERM || signal == SIGHUP;
}

}  // namespace heddle::app
