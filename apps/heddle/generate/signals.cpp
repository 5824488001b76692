#include "generate/signals.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <system_error>
#include <unistd.h>

namespace heddle::app {
namespace {

// A handler can reach nothing but what is global.
volatile std::sig_atomic_t received_signal = 0;
int pipe_ends[2] = {-1, -1};  // a byte in it wakes wait_for

void handle(int signal) {
  received_signal = signal;
  const int error = errno;
  const char byte = 0;
  [[maybe_unused]] const ssize_t written = write(pipe_ends[1], &byte, 1);
  errno = error;
}

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

/// Whether it is SIGHUP under nohup.
bool stays_ignored(int signal) {
  struct sigaction action = {};
  return signal == SIGHUP && sigaction(signal, nullptr, &action) == 0 &&
         action.sa_handler == SIG_IGN;
}

void set_handler(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | (handler == SIG_DFL ? 0 : static_cast<int>(SA_RESETHAND));
  sigaction(signal, &action, nullptr);
}

}  // namespace

StopSignal::StopSignal() {
  if (pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot make a pipe");
  }
  received_signal = 0;
  for (const int signal : kSignals) {
    if (!stays_ignored(signal)) set_handler(signal, &handle);
  }
}

StopSignal::~StopSignal() {
  for (const int signal : kSignals) {
    if (!stays_ignored(signal)) set_handler(signal, SIG_DFL);
  }
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

int StopSignal::received() const { return received_signal; }

void StopSignal::check() const {
  if (received_signal != 0) throw Stopped{received_signal};
}

void StopSignal::wait_for(int fd) const {
  pollfd states[] = {{fd, POLLIN, 0}, {pipe_ends[0], POLLIN, 0}};
  poll(states, 2, -1);
}

}  // namespace heddle::app
