#include "engine/adapters/norm_worker.h"

#include <exception>
#include <sstream>
#include <utility>

namespace heddle {

std::string odd_norms(const std::string& path, const AdapterReceipt& receipt) {
  const std::optional<double> delta = receipt.delta_norm(), base = receipt.base_norm();
  if (!delta || !base || *delta <= *base) return {};
  std::ostringstream text;
  text.precision(3);
  text << path << ": changes the weights by more than they are: its delta has a norm of " << *delta
       << ", the weights of its " << receipt.sites.size() << " sites one of " << *base
       << "; its scale may be wrong, or its training has diverged";
  return text.str();
}

NormWorker::~NormWorker() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  arrived_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void NormWorker::measure(const std::shared_ptr<LoadedReceipt>& receipt,
                         std::function<void(const AdapterReceipt&)> then) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  jobs_.push_back({receipt, std::move(then)});
  arrived_.notify_one();
}

void NormWorker::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    arrived_.wait(lock, [&] { return is_ending_ || !jobs_.empty(); });
    if (is_ending_) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    try {
      if (const std::shared_ptr<LoadedReceipt> receipt = job.receipt.lock()) {
        job.then(receipt->measured());
      }
    } catch (const std::exception&) {  // who asks for the norms gets it
    }
    lock.lock();
  }
}

}  // namespace heddle
