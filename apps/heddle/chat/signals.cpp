#include "chat/signals.h"

#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "heddle/core/error.h"

namespace heddle::app {
namespace {

sigset_t signals_of_a_terminal() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH}) sigaddset(&set, signal);
  return set;
}

}  // namespace

ChatSignals::ChatSignals() : taken_(signals_of_a_terminal()) {
  pthread_sigmask(SIG_BLOCK, &taken_, &before_);
  file_ = signalfd(-1, &taken_, SFD_NONBLOCK | SFD_CLOEXEC);
  HEDDLE_CHECK(file_ >= 0, "chat: cannot receive signals: ", std::strerror(errno));
}

ChatSignals::~ChatSignals() {
  close(file_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int ChatSignals::take() const {
  signalfd_siginfo info = {};
  if (read(file_, &info, sizeof(info)) != sizeof(info)) return 0;
  return static_cast<int>(info.ssi_signo);
}

bool ChatSignals::wait_for_input(int file) const {
  for (;;) {
    pollfd files[] = {{file_, POLLIN, 0}, {file, POLLIN, 0}};
    if (poll(files, 2, -1) < 0) continue;  // EINTR: continued after a stop
    return files[0].revents == 0;
  }
}

void ChatSignals::suspend() const {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  raise(SIGTSTP);
  pthread_sigmask(SIG_UNBLOCK, &stop, nullptr);  // stops here
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
}

UsualSignals::UsualSignals() {
  thread_ = std::thread([ended = end_.get_future()] {
    const sigset_t set = signals_of_a_terminal();
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    ended.wait();
  });
}

UsualSignals::~UsualSignals() {
  end_.set_value();
  thread_.join();
}

}  // namespace heddle::app
