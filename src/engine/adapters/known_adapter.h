#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/digest.h"
#include "engine/adapters/adapter_folder.h"
#include "engine/adapters/adapter_merge.h"
#include "engine/runner/device_adapters.h"
#include "engine/text/row_text.h"
#include "model/config/score_head.h"

namespace heddle {

/// The receipt of an adapter's weights as they were last loaded. For any thread.
class ReceiptSlot {
 public:
  void set(std::shared_ptr<LoadedReceipt> receipt) {
    const std::lock_guard lock(mutex_);
    receipt_ = std::move(receipt);
  }
  /// Null: they were never loaded.
  [[nodiscard]] std::shared_ptr<LoadedReceipt> get() const {
    const std::lock_guard lock(mutex_);
    return receipt_;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<LoadedReceipt> receipt_;
};

/// An adapter as it was when it was read.
struct KnownAdapter {
  // Facts, which do not change once it has a name; for any thread.

  std::string path{};
  files::FolderBounds bounds{};  // in which its files lie
  /// One that was given in memory, for merges, whose recipes share it; null: it has files.
  std::shared_ptr<const model::Adapter> given{};
  RowText text{};
  int64_t num_tokens = 0;             // that its rows may have in their prompts
  int64_t num_logits = 0;             // that they get
  int64_t num_bytes = 0;              // of its weights in memory, at most
  std::string_view runs_alone{};      // DeviceAdapters::runs_alone
  std::vector<int32_t> invocation{};  // of aLoRA, which acts from these tokens on; else empty
  std::shared_ptr<const model::ScoreHead> score{};  // a score head of its own; null: none
  bool has_embedding = false;                       // one of its own, or changes to the model's
  int64_t version = 0;  // under its name, counted from 1; of one of the folder 0
  std::optional<files::FileStamps> found{};  // of one that was found in the folder of adapters
  std::optional<uint64_t> young_digest{};    // of one whose files were just written: see digest_of
  bool has_host_copies = false;              // it moves to its device from a copy in host memory
  std::shared_ptr<const MergeRecipe> recipe{};  // of a merge; the tiers' threads share it
  /// Of its weights (model::AdapterContents): of one that was added, and of one of the folder from
  /// when it is first merged on, which AdapterStore::find_merge alone reads and writes.
  std::optional<Digest> content{};
  /// Its files were just written, and no read has found them unchanged since, nor is in flight.
  std::atomic<bool> is_unproven = false;
  ReceiptSlot receipt{};

  // For the thread of the engine:

  AdapterData data{};
  std::future<AdapterData> read{};                // not valid: none is in flight
  std::chrono::steady_clock::time_point begun{};  // when the read or move in flight was
  std::exception_ptr failure{};   // of a read or a move, for the rows of one schedule
  bool has_told_failure = false;  // to one of them; the next schedule tries again
  uint64_t last_used = 0;         // the tiers' count of uses
  int32_t number = -1;            // in a schedule, while one is made
  uint64_t wanted_in = 0;         // the last schedule that wants it
  size_t wanted_by = 0;           // its first row that does

  /// Whether it was added, and so stays; those of the folder and merges can be made again.
  [[nodiscard]] bool is_added() const { return !found && recipe == nullptr; }
  [[nodiscard]] bool is_in_flight() const {
    return read.valid() || data.stage() == AdapterStage::kMoving;
  }
  /// Whether an older row, or the same, of the last schedule that wants `other` wants it.
  [[nodiscard]] bool is_wanted_before(const KnownAdapter& other) const {
    return wanted_in == other.wanted_in && wanted_by <= other.wanted_by;
  }
};
/// What a row holds from when it is submitted to its end.
using AdapterHold = std::shared_ptr<KnownAdapter>;

}  // namespace heddle
