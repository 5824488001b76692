// Requests from their submission to their end without a model: a simulated device stores in each
// position of a page a number in the place of keys and values. It depends on the position before it
// (read from the pages), the token, the path and the adapter, and draws the next token: a row that
// ever reads a page of other contents ends with other tokens than alone.
#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "core/digest.h"
#include "engine/adapters/adapter_schedule.h"
#include "engine/cache/prefix_cache.h"
#include "engine/rows/row_queue.h"
#include "engine/rows/scheduler.h"
#include "random.h"

namespace heddle {
namespace {

constexpr int kNumTokens = 2;  // of the vocabulary: rows begin alike

uint64_t next_value(uint64_t before, int32_t token, bool decodes, int32_t adapter) {
  const int64_t parts[] = {token, decodes ? 1 : 0, adapter};
  return hash64(std::as_bytes(std::span(parts)), before);
}

int32_t drawn_from(uint64_t value) { return static_cast<int32_t>(value % kNumTokens); }

/// What is requested of the simulation.
struct Job {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 0;  // with the prompt
  int32_t adapter = -1;    // -1: the base model
  int64_t keys_from = RowAdapters::kNever;
  uint64_t salt = 0;
  int64_t tenant = 0, priority = 0;
};

/// The tokens of a job that runs alone.
std::vector<int32_t> alone(const Job& job, bool has_two_paths) {
  std::vector<int32_t> tokens = job.prompt;
  uint64_t value = job.salt;
  for (int64_t i = 0; std::ssize(tokens) < job.max_tokens; ++i) {
    const bool decodes = has_two_paths && i >= std::ssize(job.prompt);
    value = next_value(value, tokens[size_t(i)], decodes, i < job.keys_from ? -1 : job.adapter);
    if (i + 1 == std::ssize(tokens)) tokens.push_back(drawn_from(value));
  }
  return tokens;
}

/// Adapters of random sizes that take random times to arrive.
class SimulatedAdapters : public RowQueue::Adapters {
 public:
  struct Adapter {
    int64_t num_bytes;
    AdapterStage stage = AdapterStage::kStored;
    int num_steps = 0;  // until it arrives
    std::shared_ptr<const int32_t> slot{};
    uint64_t last_used = 0;
  };

  SimulatedAdapters(const std::map<RequestId, Job>& jobs, const AdapterBounds& bounds, int count)
      : jobs_(jobs), bounds_(bounds) {
    for (int i = 0; i < count; ++i) {
      adapters.push_back({.num_bytes = testing::random_int(1, bounds.memory_bytes)});
    }
    schedule_.reserve(adapters.size(), kMaxScheduledRows, kMaxScheduledRows);
  }

  std::span<const Admission> schedule(std::span<const Sequence* const> waiting) noexcept override {
    schedule_.clear();
    for (const Adapter& each : adapters) {
      schedule_.adapters.push_back({.num_bytes = each.num_bytes,
                                    .stage = each.stage,
                                    .num_running = num_running(each),
                                    .last_used = each.last_used});
    }
    for (const Sequence* row : waiting) {
      const auto begin = static_cast<int32_t>(schedule_.uses.size());
      const int32_t adapter = jobs_.at(row->id).adapter;
      if (adapter >= 0) schedule_.uses.push_back(adapter);
      schedule_.rows.push_back({begin, static_cast<int32_t>(schedule_.uses.size())});
    }
    schedule_adapters(schedule_, bounds_);
    for (const int32_t i : schedule_.evicts) adapters[size_t(i)].stage = AdapterStage::kStored;
    for (const int32_t i : schedule_.evicts) adapters[size_t(i)].slot = nullptr;
    for (const int32_t i : schedule_.brings) begin_load(i, AdapterStage::kMoving);
    for (const int32_t i : schedule_.reads) begin_load(i, AdapterStage::kReading);
    return schedule_.admissions;
  }
  void take(Sequence& row) override {
    const int32_t adapter = jobs_.at(row.id).adapter;
    if (adapter < 0) return;
    Adapter& taken = adapters[size_t(adapter)];
    EXPECT_NE(taken.slot, nullptr) << "it starts without its adapter";
    taken.last_used = ++num_uses_;
    row.adapters.weights.push_back(taken.slot);
    row.adapters.slot = adapter;
  }
  [[nodiscard]] Digest content(const Sequence& row) const noexcept override {
    return {static_cast<uint64_t>(jobs_.at(row.id).adapter + 1), 0};
  }

  /// Time goes on; the bounds hold.
  void step() {
    int64_t num_bytes = 0, num_used = 0;
    for (Adapter& each : adapters) {
      const bool arrives = each.num_steps > 0 && --each.num_steps == 0;
      if (arrives && each.stage == AdapterStage::kReading) {
        each.stage = AdapterStage::kStaged;
      } else if (arrives) {
        each.stage = AdapterStage::kResident;
        each.slot = std::make_shared<const int32_t>(0);
      }
      const bool is_in =
          each.stage == AdapterStage::kResident || each.stage == AdapterStage::kMoving;
      num_bytes += is_in ? each.num_bytes : 0;
      num_used += num_running(each) > 0 ? 1 : 0;
    }
    ASSERT_LE(num_bytes, bounds_.memory_bytes);
    ASSERT_LE(num_used, bounds_.step_adapters);
  }

  std::vector<Adapter> adapters;

 private:
  static int64_t num_running(const Adapter& adapter) {
    return adapter.slot == nullptr ? 0 : static_cast<int64_t>(adapter.slot.use_count()) - 1;
  }
  void begin_load(int32_t i, AdapterStage stage) {
    adapters[size_t(i)].stage = stage;
    adapters[size_t(i)].num_steps = static_cast<int>(testing::random_int(1, 4));
  }

  const std::map<RequestId, Job>& jobs_;
  AdapterBounds bounds_;
  AdapterSchedule schedule_;
  uint64_t num_uses_ = 0;
};

/// A shelf with room for some pages, that takes random times to copy them back.
class SimulatedShelf : public PageShelf {
 public:
  static constexpr int64_t kPageSize = 4;

  SimulatedShelf(std::vector<uint64_t>& values, int64_t num_pages)
      : values_(values), num_free_(num_pages) {}

  Saved save(std::span<const PageId> pages) noexcept override {
    EXPECT_FALSE(pages.empty());
    if (std::ssize(pages) > num_free_) return Saved::kNone;
    const Saved saved{++num_saved_};
    for (const PageId page : pages) {
      const auto from = values_of(page);
      shelved_[saved].contents.emplace_back(from.begin(), from.end());
    }
    num_free_ -= std::ssize(pages);
    return saved;
  }
  bool begin_restore(Saved saved, std::span<const PageId> pages) noexcept override {
    Shelved& shelved = shelved_.at(saved);
    EXPECT_EQ(pages.size(), shelved.contents.size());
    EXPECT_TRUE(shelved.to.empty());
    if (testing::random_int(0, 9) == 0) return false;
    shelved.to.assign(pages.begin(), pages.end());
    return true;
  }
  bool is_restored(Saved saved) noexcept override {
    if (testing::random_int(0, 2) > 0) return false;
    wait_until_restored(saved);
    return true;
  }
  void wait_until_restored(Saved saved) noexcept override {
    const Shelved& shelved = shelved_.at(saved);
    EXPECT_FALSE(shelved.to.empty());
    for (size_t i = 0; i < shelved.to.size(); ++i) {
      std::ranges::copy(shelved.contents[i], values_of(shelved.to[i]).begin());
    }
  }
  void break_off(Saved saved) noexcept override { shelved_.at(saved).to.clear(); }
  void drop(Saved saved) noexcept override {
    num_free_ += std::ssize(shelved_.at(saved).contents);
    shelved_.erase(saved);
  }

  [[nodiscard]] bool is_empty() const { return shelved_.empty(); }

 private:
  struct Shelved {
    std::vector<std::vector<uint64_t>> contents;
    std::vector<PageId> to;
  };
  std::span<uint64_t> values_of(PageId page) {
    return std::span(values_).subspan(size_t(page) * kPageSize, kPageSize);
  }

  std::vector<uint64_t>& values_;
  int64_t num_free_;
  uint64_t num_saved_ = 0;
  std::map<Saved, Shelved> shelved_;
};

class Simulation {
 public:
  explicit Simulation(bool has_two_paths)
      : pool_(testing::random_int(8, 40)),
        values_(static_cast<size_t>(pool_.num_pages() * kPageSize)),
        prefixes_(pool_, kPageSize),
        adapters_(jobs_, {.memory_bytes = 100, .step_adapters = testing::random_int(1, 3)}, 5),
        has_tenants_(testing::random_int(0, 1) == 0),
        has_priorities_(testing::random_int(0, 1) == 0),
        queue_(pool_,
               {.max_batch = static_cast<int>(testing::random_int(1, 12)),
                .page_size = kPageSize,
                .reserves_longest = testing::random_int(0, 4) == 0,
                .has_two_paths = has_two_paths,
                .has_tenants = has_tenants_},
               &adapters_, testing::random_int(0, 4) == 0 ? nullptr : &prefixes_,
               testing::random_int(0, 3) == 0 ? nullptr : &shelf_),
        has_two_paths_(has_two_paths),
        chunk_(testing::random_int(1, 20)) {
    prefixes_.set_copy_page([this](PageId from, PageId to) {
      if (testing::random_int(0, 9) == 0) return false;
      const auto page = [this](PageId id) { return values_.begin() + int64_t(id) * kPageSize; };
      std::copy_n(page(from), kPageSize, page(to));
      ++copied_pages;
      return true;
    });
  }

  void run(int64_t num_jobs) {
    int64_t num_idle = 0;
    while (num_ended < num_jobs) {
      for (int64_t i = testing::random_int(0, 2); i > 0 && std::ssize(jobs_) < num_jobs; --i) {
        submit();
      }
      for (Sequence& each : queue_.running()) {
        if (testing::random_int(0, 40) == 0) queue_.set_paused(each, !each.is_paused);
      }
      if (testing::random_int(0, 60) == 0) go_on_all();
      const auto before = ids_of(queue_.running());
      queue_.admit();
      ASSERT_NO_FATAL_FAILURE(check_order(before));
      adapters_.step();
      const RequestId first = first_running();
      queue_.prepare_step();
      if (first >= 0) {
        ASSERT_NE(find(queue_.running(), first), nullptr) << "the first was parked";
      }
      schedule_step(step_, queue_.running(), {.prefill_chunk = chunk_});
      ++num_steps;
      num_idle = step_.rows.empty() ? num_idle + 1 : 0;
      if (num_idle > 20) go_on_all();
      ASSERT_LT(num_idle, 60) << "rows wait, none runs";
      ASSERT_NO_FATAL_FAILURE(compute());
      queue_.ended().clear();
    }
    go_on_all();
    EXPECT_EQ(queue_.num_parked(), 0);
    EXPECT_EQ(pool_.num_free(), pool_.num_pages());
    EXPECT_EQ(pool_.num_unused(), prefixes_.num_entries());
    parkings += queue_.counts().parkings;
    cached_tokens += queue_.counts().cached_tokens;
    restored_tokens += queue_.counts().restored_tokens;
    EXPECT_TRUE(shelf_.is_empty());
  }

  static inline int64_t num_steps = 0, parkings = 0, cached_tokens = 0, restored_tokens = 0;
  static inline int64_t copied_pages = 0;

 private:
  static constexpr int64_t kPageSize = SimulatedShelf::kPageSize;

  void submit() {
    Job job;
    const int64_t room = pool_.num_pages() * kPageSize;
    const int64_t num_prompt = testing::random_int(1, room / testing::random_int(2, 8));
    for (int64_t i = 0; i < num_prompt; ++i) {
      job.prompt.push_back(testing::random_int(0, 30) == 0 ? 1 : 0);
    }
    job.max_tokens = testing::random_int(num_prompt + 1, room + 1);
    job.adapter = static_cast<int32_t>(testing::random_int(-2, 4));
    if (job.adapter < 0) job.adapter = -1;
    if (job.adapter >= 0) job.keys_from = testing::random_int(0, 1) * testing::random_int(0, 30);
    job.salt = testing::random_int(0, 5) == 0 ? 1 : 0;
    job.tenant = has_tenants_ ? testing::random_int(0, 3) : 0;
    job.priority = has_priorities_ ? testing::random_int(-2, 2) : 0;
    const auto id = static_cast<RequestId>(jobs_.size());
    Sequences one = RowQueue::make_row(id);
    Sequence& row = one.front();
    row.tokens = job.prompt;
    row.request.prompt_tokens = num_prompt;
    row.request.max_tokens = job.max_tokens;
    row.request.salt = {job.salt, 0};
    row.adapters.keys_from = job.keys_from;
    row.request.priority = job.priority;
    if (has_tenants_) {
      row.request.tenant = std::to_string(job.tenant);
      row.request.weight = testing::pick({0.5, 1.0, 3.0});
    }
    if (has_tenants_ || job.priority != 0) row.tenant = queue_.tenant(row.request);
    jobs_.emplace(id, std::move(job));
    queue_.wait(std::move(one));
  }

  void go_on_all() {
    for (const auto& [id, job] : jobs_) {
      if (Sequence* row = queue_.find(id)) queue_.set_paused(*row, false);
    }
  }

  static std::vector<RequestId> ids_of(const Sequences& rows) {
    std::vector<RequestId> ids;
    for (const Sequence& row : rows) ids.push_back(row.id);
    return ids;
  }
  static const Sequence* find(const Sequences& rows, RequestId id) {
    const auto place = std::ranges::find(rows, id, &Sequence::id);
    return place == rows.end() ? nullptr : &*place;
  }
  /// Of the lowest priority the one that runs longest; those that are paused do not count.
  [[nodiscard]] RequestId first_running() {
    const Sequence* first = nullptr;
    const auto rank = [](const Sequence& row) {
      return std::pair(row.request.priority, row.seniority);
    };
    for (const Sequence& row : queue_.running()) {
      if (!row.is_paused && (first == nullptr || rank(row) < rank(*first))) first = &row;
    }
    return first == nullptr ? -1 : first->id;
  }

  /// None that has just started has overtaken one of the same adapter that has a lower priority, or
  /// the same one and tenant.
  void check_order(const std::vector<RequestId>& before) {
    for (const Sequence& started : queue_.running()) {
      if (std::ranges::find(before, started.id) != before.end()) continue;
      queue_.waiting().for_each([&](const Sequence& waiting) {
        const Job &a = jobs_.at(waiting.id), &b = jobs_.at(started.id);
        const bool was_before =
            a.priority < b.priority ||
            (a.priority == b.priority && a.tenant == b.tenant && waiting.id < started.id);
        ASSERT_FALSE(a.adapter == b.adapter && !waiting.is_paused && was_before);
      });
    }
  }

  uint64_t& value(const Sequence& row, int64_t position) {
    const PageId page = row.cache.pages.ids()[size_t(position / kPageSize)];
    return values_[size_t(page) * kPageSize + size_t(position % kPageSize)];
  }

  void compute() {
    ASSERT_GE(pool_.num_free(), 0);
    for (RowStep& part : step_.rows) {
      Sequence& row = *part.sequence;
      const Job& job = jobs_.at(row.id);
      row.cache.pages.grow_to(pages_for(part.first + part.count, kPageSize));
      for (int64_t i = part.first; i < part.first + part.count; ++i) {
        const uint64_t before = i == 0 ? job.salt : value(row, i - 1);
        value(row, i) = next_value(before, row.tokens[size_t(i)], has_two_paths_ && part.decodes,
                                   i < job.keys_from ? -1 : job.adapter);
      }
      row.cache.num_cached += part.count;
    }
    for (RowStep& part : step_.rows) {
      Sequence& row = *part.sequence;
      queue_.add_computed(row, part.first + part.count);
      if (part.num_logits == 0) continue;
      queue_.charge_token(row);
      row.tokens.push_back(drawn_from(value(row, part.first + part.count - 1)));
      row.answer.completion.token_ids.push_back(row.tokens.back());
      if (std::ssize(row.tokens) < row.request.max_tokens) continue;
      ASSERT_EQ(row.tokens, alone(jobs_.at(row.id), has_two_paths_)) << "request " << row.id;
      queue_.end(row, FinishReason::kLength);
      ++num_ended;
    }
  }

  std::map<RequestId, Job> jobs_;
  PagePool pool_;
  std::vector<uint64_t> values_;
  SimulatedShelf shelf_{values_, testing::random_int(0, 30)};
  PrefixCache prefixes_;
  SimulatedAdapters adapters_;
  bool has_tenants_, has_priorities_;
  RowQueue queue_;
  bool has_two_paths_;
  int64_t chunk_;
  StepSchedule step_;
  int64_t num_ended = 0;
};

/// No request starves, none deadlocks, the oldest of the lowest priority is never parked, equals
/// keep their order, neither pages nor adapters exceed their bounds, and no request's tokens depend
/// on any of it.
TEST(RowLife, RandomRequestsEndWithTheTokensThatTheyHaveAlone) {
  constexpr int64_t kNumSteps = 100000;
  for (int i = 0; Simulation::num_steps < kNumSteps; ++i) {
    Simulation simulation(i % 2 == 1);
    ASSERT_NO_FATAL_FAILURE(simulation.run(60)) << "simulation " << i;
  }
  EXPECT_GT(Simulation::parkings, 500);
  EXPECT_GT(Simulation::cached_tokens, 2000);
  EXPECT_GT(Simulation::restored_tokens, 1000);
  EXPECT_GT(Simulation::copied_pages, 20);  // of most seeds more than 100
}

}  // namespace
}  // namespace heddle
