#pragma once

#include <span>
#include <vector>

#include "engine/cache/page_pool.h"
#include "engine/rows/admission.h"
#include "engine/rows/row_failure.h"
#include "engine/rows/sequence.h"

namespace heddle {

/// Finds the one of `others`, which are queued before the sequence, with which it shares the most
/// keys and values at its beginning, in whole pages; it then starts after that one.
void share_prefix(Sequence& sequence, std::span<Sequence* const> others, int64_t page_size);

/// The requests of an engine: those that wait, those that run, and those that have ended and were
/// not reported yet. First come, first served: the request that waits longest is admitted as soon
/// as a place in the batch and the pages for its longest answer are free, and none overtakes it,
/// except while its adapters are not resident: then others start before it, as
/// schedule_adapters decides. All pages that a running request can need are reserved at admission,
/// so it is never preempted and every request finishes. A request that shares its first pages with
/// another one starts when that has computed them.
class RowQueue {
 public:
  /// What requests need besides pages.
  class Adapters {
   public:
    virtual ~Adapters() = default;
    /// Decides about waiting requests, given the oldest first; about the first ones alone where
    /// there are many. Valid until the next call.
    virtual std::span<const Admission> schedule(
        std::span<const Sequence* const> waiting) noexcept = 0;
    /// Gives its adapters to a request that starts, or throws what ends it: of kStarts and kNever.
    virtual void take(Sequence& sequence) = 0;
  };

  /// adapters: nullptr where no request needs any; outlives the queue.
  RowQueue(PagePool& pages, int max_batch, int64_t page_size, Adapters* adapters = nullptr)
      : pages_(pages), max_batch_(max_batch), page_size_(page_size), adapters_(adapters) {
    scheduled_.reserve(kMaxScheduledRows);
  }

  /// A list of one new sequence with room for its error, so that a failure is reported even where
  /// there is no memory left.
  [[nodiscard]] static Sequences make_row(RequestId id);

  // From here on a sequence moves between lists, which allocates nothing.

  /// Queues the one sequence of the list. Its tokens and lengths are set.
  void wait(Sequences&& one) noexcept { waiting_.splice(waiting_.end(), one); }
  /// The one sequence of the list has ended with an error before it was queued.
  void refuse(Sequences&& one, const RowFailure& failure) noexcept;
  /// Ends a waiting or running request and frees its pages.
  void end(Sequence& sequence, FinishReason reason) noexcept;
  void fail(Sequence& sequence, const RowFailure& failure) noexcept;
  /// All that wait or run.
  void fail_all(const RowFailure& failure) noexcept;

  /// Starts the requests that fit. One for whose start there is no memory ends with an error.
  void admit() noexcept;

  /// The request that waits or runs under this id; nullptr: none.
  [[nodiscard]] Sequence* find(RequestId id);
  [[nodiscard]] const Sequences& waiting() const { return waiting_; }
  [[nodiscard]] Sequences& running() { return running_; }
  [[nodiscard]] const Sequences& running() const { return running_; }
  [[nodiscard]] Sequences& ended() { return ended_; }
  [[nodiscard]] const Sequences& ended() const { return ended_; }
  /// All ends were reported. Pages that waiting requests will share are kept until these start.
  void forget_ended() noexcept;

 private:
  bool start(Sequence& sequence);
  [[nodiscard]] std::span<const Admission> schedule() noexcept;
  [[nodiscard]] bool start_scheduled() noexcept;
  [[nodiscard]] const Sequence* find_leader(const Sequence& sequence) const;
  [[nodiscard]] int64_t num_awaited(const Sequence& sequence) const;
  void free_kept() noexcept;

  PagePool& pages_;
  int max_batch_;
  int64_t page_size_;
  Adapters* adapters_;
  std::vector<const Sequence*> scheduled_;
  Sequences waiting_, running_, ended_;
  Sequences kept_;  // reported, but their pages will be shared
};

}  // namespace heddle
