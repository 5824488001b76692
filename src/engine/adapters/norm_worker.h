#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "engine/runner/loaded_receipt.h"

namespace heddle {

/// What a receipt with norms says that is odd: a delta above the weights that it changes. Empty:
/// nothing.
[[nodiscard]] std::string odd_norms(const std::string& path, const AdapterReceipt& receipt);

/// Computes the norms of receipts in a thread of its own, one after another: a load does not wait
/// for them. A receipt that nothing holds any more is left out.
class NormWorker {
 public:
  NormWorker() = default;
  NormWorker(const NormWorker&) = delete;
  NormWorker& operator=(const NormWorker&) = delete;
  /// Ends what it is at.
  ~NormWorker();

  /// For the functions that compute norms: they end early once it is true.
  [[nodiscard]] const std::atomic<bool>& is_ending() const { return is_ending_; }
  /// Then calls then(receipt) in its thread; not where computing throws. In any thread.
  void measure(const std::shared_ptr<LoadedReceipt>& receipt,
               std::function<void(const AdapterReceipt&)> then);

 private:
  struct Job {
    std::weak_ptr<LoadedReceipt> receipt;
    std::function<void(const AdapterReceipt&)> then;
  };
  void run();

  std::atomic<bool> is_ending_ = false;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Job> jobs_;
  std::thread thread_;  // from the first job on
};

}  // namespace heddle
