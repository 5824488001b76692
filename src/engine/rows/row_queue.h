#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/cache/page_pool.h"
#include "engine/cache/prefix_cache.h"
#include "engine/rows/admission.h"
#include "engine/rows/row_failure.h"
#include "engine/rows/sequence.h"
#include "engine/rows/waiting_rows.h"

namespace heddle {

/// The requests of an engine: those that wait, those that run, and those that have ended and were
/// not reported yet.
///
/// WaitingRows says which waiting request is the next one: of those of the lowest priority, without
/// tenants the one that waits longest. It is admitted as soon as there is a place in the batch and
/// room for its pages, and none overtakes it, except while its adapters are not resident: then
/// others start before it, as schedule_adapters decides.
///
/// With Rules::reserves_longest there is room where all pages are free that its longest answer can
/// need. Otherwise where those of its tokens are, kSparePages, and one for each request that runs;
/// when pages run out later, running requests are parked until the others can go on: they give up
/// pages and adapters, and wait again. The first to be parked are those that are paused, and of
/// these and the others those of the largest priority, and of these the youngest: the ones that
/// were submitted last, or, with Rules::has_tenants, the ones that started last, whoever's they
/// are. So of the lowest priority the oldest that is not paused is never parked, and every request
/// finishes, unless others of lower priorities keep coming. Where tokens are drawn on a path of
/// their own, the shelf has the pages of parked requests that the prefix cache does not have, if
/// there is room; of one whose adapters have been switched it has all in any case, or the request
/// ends with an error.
class RowQueue {
 public:
  /// What requests need besides pages.
  class Adapters {
   public:
    virtual ~Adapters() = default;
    /// Decides about waiting requests, given in the order in which they would start; about the
    /// first ones alone where there are many. Valid until the next call.
    virtual std::span<const Admission> schedule(
        std::span<const Sequence* const> waiting) noexcept = 0;
    /// Gives its adapters to a request that starts, or throws what ends it: of kStarts and kNever.
    virtual void take(Sequence& sequence) = 0;
    /// RowAdapters::content of a request that starts.
    [[nodiscard]] virtual Digest content(const Sequence& sequence) const noexcept = 0;
  };
  struct Rules {
    int max_batch;
    int64_t page_size;
    bool reserves_longest = true;
    /// Whether tokens of prompts and drawn ones have different bits: the prefix cache then has
    /// pages of prompts alone, and a request that was parked decodes its drawn tokens again, unless
    /// their pages are on the shelf.
    bool has_two_paths = false;
    /// Whether requests start in another order than they were submitted in, since tenants share the
    /// engine.
    bool has_tenants = false;
  };
  /// What has happened.
  struct Counts {
    int64_t prefix_tokens = 0;  // of prompts that were looked for in the prefix cache
    int64_t cached_tokens = 0;  // of these: found
    int64_t parkings = 0;
    int64_t restored_tokens = 0;  // that came from the shelf
  };
  static constexpr int64_t kSparePages = 2;

  /// adapters: nullptr where no request needs any; prefixes: nullptr where no pages are shared;
  /// shelf: nullptr where there is none. They outlive the queue.
  RowQueue(PagePool& pages, const Rules& rules, Adapters* adapters = nullptr,
           PrefixCache* prefixes = nullptr, PageShelf* shelf = nullptr)
      : pages_(pages), rules_(rules), adapters_(adapters), prefixes_(prefixes), shelf_(shelf) {
    scheduled_.reserve(kMaxScheduledRows);
  }

  /// WaitingRows::tenant of a request.
  [[nodiscard]] std::shared_ptr<Tenant> tenant(const RowRequest& request) {
    return waiting_.tenant(request.tenant, request.weight, request.priority);
  }
  /// A list of one new sequence with room for its error, so that a failure is reported even where
  /// there is no memory left.
  [[nodiscard]] static Sequences make_row(RequestId id);

  // From here on a sequence moves between lists, which allocates nothing.

  /// Queues the one sequence of the list. Its tokens and lengths are set, and its tenant where
  /// tenants share the engine or it has a priority.
  void wait(Sequences&& one) noexcept { waiting_.add(one, one.begin()); }
  /// The one sequence of the list has ended with an error before it was queued.
  void refuse(Sequences&& one, const RowFailure& failure) noexcept;
  /// Ends a waiting or running request and frees its pages.
  void end(Sequence& sequence, FinishReason reason) noexcept;
  void fail(Sequence& sequence, const RowFailure& failure) noexcept;
  /// All that wait or run.
  void fail_all(const RowFailure& failure) noexcept;

  /// Starts the requests that fit. One for whose start there is no memory ends with an error.
  void admit() noexcept;
  /// Before a step is scheduled: reserves the pages of what running requests compute next, for
  /// which some may be parked, and gives those that prefill the pages that others have computed.
  void prepare_step() noexcept;
  /// Waits until a page that a request waits for has come, unless another one computes it; false:
  /// there is none.
  bool wait_for_page() noexcept;
  /// The request has computed its positions up to `end`: the prefix cache gets the pages.
  void add_computed(Sequence& sequence, int64_t end) noexcept;
  /// As above, of a request with drafts, of which those up to `end` are tokens: what was stored for
  /// the others no longer counts. No other step with it is in flight.
  void accept(Sequence& sequence, int64_t end) noexcept;
  /// A token was drawn for the request.
  void charge_token(const Sequence& sequence) noexcept { waiting_.charge(sequence, 1); }
  /// Requests with the adapter `from` go on with `to`: those that wait begin with it, those that
  /// run compute their next token with it, and those that were parked do so once they have the keys
  /// and values again that they had. `to` is resident, and makes the same of a request's tokens.
  void switch_adapter(const std::shared_ptr<KnownAdapter>& from,
                      const std::shared_ptr<KnownAdapter>& to) noexcept;
  /// A paused request takes no part in steps.
  void set_paused(Sequence& sequence, bool is_paused) noexcept;

  /// The request that waits or runs under this id; nullptr: none.
  [[nodiscard]] Sequence* find(RequestId id);
  [[nodiscard]] const WaitingRows& waiting() const { return waiting_; }
  [[nodiscard]] Sequences& running() { return running_; }
  [[nodiscard]] const Sequences& running() const { return running_; }
  [[nodiscard]] Sequences& ended() { return ended_; }
  [[nodiscard]] const Sequences& ended() const { return ended_; }
  [[nodiscard]] const Counts& counts() const { return counts_; }
  /// Of the waiting requests: those that were parked.
  [[nodiscard]] int64_t num_parked() const { return num_parked_; }

 private:
  [[nodiscard]] bool start(Sequence& sequence);
  [[nodiscard]] std::optional<ReservedPages> reserve(const Sequence& sequence);
  [[nodiscard]] bool reserve_next(Sequence& sequence) noexcept;
  [[nodiscard]] Sequences::iterator next_to_park() noexcept;
  void park(Sequences::iterator place) noexcept;
  void set_next_adapter(Sequence& sequence, const std::shared_ptr<KnownAdapter>& from,
                        const std::shared_ptr<KnownAdapter>& to) noexcept;
  void switch_due(Sequence& sequence) noexcept;
  void begin_next_adapters(Sequence& sequence);
  void save(Sequence& sequence) noexcept;
  void restore(Sequence& sequence) noexcept;
  void drop_saved(Sequence& sequence) noexcept;
  void take_prefix(Sequence& sequence) noexcept;
  void take_part(Sequence& sequence, const PrefixKey& key) noexcept;
  void count_cached(Sequence& sequence, int64_t num_tokens) noexcept;
  void add_tail(Sequence& sequence) noexcept;
  void free_pages(Sequence& sequence) noexcept;
  [[nodiscard]] std::span<const Admission> schedule(
      std::span<const WaitingRows::Place> order) noexcept;
  [[nodiscard]] bool start_scheduled() noexcept;

  PagePool& pages_;
  Rules rules_;
  Adapters* adapters_;
  PrefixCache* prefixes_;
  PageShelf* shelf_;
  std::vector<const Sequence*> scheduled_;
  std::vector<PageId> found_;  // in the prefix cache, of the request that starts
  WaitingRows waiting_;
  Sequences running_, ended_;
  Counts counts_;
  int64_t num_parked_ = 0, num_started_ = 0;
};

}  // namespace heddle
