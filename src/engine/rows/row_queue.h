#pragma once

#include <list>
#include <span>
#include <vector>

#include "engine/adapters/adapter_schedule.h"
#include "engine/cache/page_pool.h"
#include "engine/rows/row_failure.h"
#include "engine/rows/sequence.h"

namespace heddle {

/// The rows of an engine: those that wait, those that run, and those that have ended and were not
/// told of yet. First come, first served: the row that waits longest is admitted as soon as a place
/// in the batch is free and the pages for its longest answer are, and none overtakes it; but where
/// its adapters are not there, others start before it (schedule_adapters). A running row has
/// all pages that it can need, so it never gives way, always ends and gives them back: nobody
/// starves. A row that begins like another one starts when
/// that has computed what they share, and takes over its pages.
class RowQueue {
 public:
  using Rows = std::list<Sequence>;

  /// What rows need besides pages.
  class Adapters {
   public:
    virtual ~Adapters() = default;
    /// What becomes of rows that wait, given the oldest first; of the first ones alone where they
    /// are many. Valid until the next call.
    virtual std::span<const RowPlan> plan(std::span<const Sequence* const> rows) noexcept = 0;
    /// Gives it to a row that starts, or throws what ends the row: of kStarts and kNever.
    virtual void take(Sequence& row) = 0;
  };

  /// adapters: null where no row needs any; outlives the queue.
  RowQueue(PagePool& pages, int max_batch, int64_t page_size, Adapters* adapters = nullptr)
      : pages_(pages), max_batch_(max_batch), page_size_(page_size), adapters_(adapters) {
    planned_.reserve(kMostPlannedRows);
  }

  /// A list of one new row with room for its error, so that no failure is left untold for want of
  /// memory.
  [[nodiscard]] static Rows make_row(RequestId id);

  // From here on a row changes its list and nothing else: that asks for no memory.

  /// Lets the one row of the list wait behind all others. Its tokens and lengths are set.
  void wait(Rows&& row) noexcept { waiting_.splice(waiting_.end(), row); }
  /// The one row of the list has ended with an error before it could wait.
  void refuse(Rows&& row, const RowFailure& failure) noexcept;
  /// Ends a row that waits or runs, and gives its pages back.
  void end(Sequence& row, FinishReason reason) noexcept;
  void fail(Sequence& row, const RowFailure& failure) noexcept;
  /// All that wait or run.
  void fail_all(const RowFailure& failure) noexcept;

  /// Starts the rows that fit. A row for whose start there is no memory ends with an error.
  void admit() noexcept;

  /// The row that waits or runs under this id; nullptr: none.
  [[nodiscard]] Sequence* find(RequestId id);
  [[nodiscard]] const Rows& waiting() const { return waiting_; }
  [[nodiscard]] Rows& running() { return running_; }
  [[nodiscard]] const Rows& running() const { return running_; }
  [[nodiscard]] Rows& ended() { return ended_; }
  [[nodiscard]] const Rows& ended() const { return ended_; }
  /// All ends were told. The pages of a row that others wait to begin with stay until they have.
  void forget_ended() noexcept;

 private:
  bool start(Sequence& row);
  [[nodiscard]] std::span<const RowPlan> plan() noexcept;
  [[nodiscard]] bool start_planned() noexcept;
  [[nodiscard]] const Sequence* find_leader(const Sequence& row) const;
  [[nodiscard]] int64_t num_awaited(const Sequence& row) const;
  void free_kept() noexcept;

  PagePool& pages_;
  int max_batch_;
  int64_t page_size_;
  Adapters* adapters_;
  std::vector<const Sequence*> planned_;
  Rows waiting_, running_, ended_;
  Rows kept_;  // told of, for their pages
};

}  // namespace heddle
