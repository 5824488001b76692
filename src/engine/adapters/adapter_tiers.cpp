#include "engine/adapters/adapter_tiers.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>
#include <variant>

#include "heddle/core/error.h"

#include "engine/adapters/settled_read.h"
#include "model/adapters/open_adapter.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostLoads = 2;  // that are under way at once: they take time from the steps

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

struct AdapterHostCopy {
  ModelRunner::HostAdapter weights;
};

struct AdapterLoad {
  using Loaded = std::variant<ModelRunner::PreparedAdapter, std::shared_ptr<AdapterHostCopy>>;
  Clock::time_point begin = Clock::now();
  std::future<Loaded> loaded{};

  [[nodiscard]] bool has_ended() const {
    return loaded.wait_for(Clock::duration::zero()) == std::future_status::ready;
  }
};

struct AdapterMove {
  Clock::time_point begin = Clock::now();
  ModelRunner::MovingAdapter moving;
};

AdapterTiers::~AdapterTiers() {
  for (const KnownAdapter* known : under_way_) {
    if (known->move) known->move->moving.arrived.wait();
  }
}

void AdapterTiers::reserve(size_t num_adapters) {
  for (auto* list : {&device_.adapters, &host_.adapters, &under_way_}) {
    if (list->capacity() < num_adapters) list->reserve(2 * num_adapters);
  }
}

AdapterPlace AdapterTiers::place(const KnownAdapter& known) const {
  if (known.weights != nullptr) return AdapterPlace::kThere;
  if (known.move != nullptr) return AdapterPlace::kComing;
  if (known.load != nullptr) {
    return known.has_host_copies ? AdapterPlace::kReading : AdapterPlace::kComing;
  }
  const bool is_at_hand = known.host != nullptr || !known.has_host_copies;
  return is_at_hand ? AdapterPlace::kAtHand : AdapterPlace::kAway;
}

bool AdapterTiers::poll() noexcept {
  bool any = false;
  for (size_t i = 0; i < under_way_.size();) {
    KnownAdapter& known = *under_way_[i];
    const bool has_loaded = known.load != nullptr && known.load->has_ended();
    const bool has_moved = known.move != nullptr && known.move->moving.arrived.has_passed();
    if (!has_loaded && !has_moved) {
      ++i;
      continue;
    }
    any = true;
    under_way_[i] = under_way_.back();
    under_way_.pop_back();
    has_loaded ? end_load(known) : end_move(known);
  }
  return any;
}

bool AdapterTiers::wait() noexcept {
  if (under_way_.empty()) return false;
  const KnownAdapter& known = *under_way_.front();
  if (known.load != nullptr) {
    known.load->loaded.wait();
  } else {
    known.move->moving.arrived.wait();
  }
  return true;
}

void AdapterTiers::begin_read(KnownAdapter& known) noexcept {
  if (num_loads_ >= kMostLoads) return;
  std::shared_ptr<AdapterHostCopy> old;
  if (!make_host_room(known, old)) return;
  try {
    begin_load(known, std::move(old));
  } catch (const std::exception&) {
    known.failure = std::current_exception();
    return;
  }
  host_.add(known);
}

bool AdapterTiers::begin_bring(KnownAdapter& known) noexcept {
  try {
    if (known.host == nullptr) {
      if (num_loads_ >= kMostLoads) return false;
      begin_load(known, nullptr);
    } else {
      auto move = std::make_shared<AdapterMove>(
          AdapterMove{.moving = runner_.begin_move(known.host->weights)});
      known.move = std::move(move);
      under_way_.push_back(&known);
      ++counts_.num_moves;
    }
  } catch (const std::exception&) {
    known.failure = std::current_exception();
    return true;
  }
  device_.add(known);
  return true;
}

/// Reads an adapter of the folder as its rows were checked with. Asks for memory before it begins.
void AdapterTiers::begin_load(KnownAdapter& known, std::shared_ptr<AdapterHostCopy> old) {
  const auto read = [this, to_host = known.has_host_copies, path = known.path,
                     bounds = known.bounds, found = *known.found, digest = known.young_digest,
                     old = std::move(old)]() -> AdapterLoad::Loaded {
    const auto look = [&] {
      files::FileStamps stamps = stamps_of(path);
      HEDDLE_CHECK(stamps == found, path,
                   ": has changed while the request waited; submit it again");
      return stamps;
    };
    (void)files::wait_until_settled(path, kAdapterPatience, look);
    const auto opened = model::open_adapter(path, files_.config(), bounds);
    opened->check_fits(files_.config().dims());
    opened->load();
    (void)look();
    HEDDLE_CHECK(!digest || digest_of(path, bounds) == *digest, path,
                 ": has changed while the request waited; submit it again");
    AdapterLoad::Loaded loaded;
    if (to_host) {
      ModelRunner::HostAdapter room;
      if (old != nullptr) room = std::move(old->weights);
      loaded = std::make_shared<AdapterHostCopy>(
          AdapterHostCopy{runner_.stage_adapter(*opened, std::move(room))});
    } else {
      loaded = runner_.prepare_adapter(*opened);
    }
    return loaded;
  };
  auto load = std::make_shared<AdapterLoad>();
  load->loaded = std::async(std::launch::async, read);
  known.load = std::move(load);
  under_way_.push_back(&known);
  ++num_loads_;
  ++counts_.num_reads;
}

void AdapterTiers::end_load(KnownAdapter& known) noexcept {
  const std::shared_ptr<AdapterLoad> load = std::exchange(known.load, nullptr);
  --num_loads_;
  counts_.seconds += seconds_since(load->begin);
  try {
    AdapterLoad::Loaded loaded = load->loaded.get();
    known.young_digest.reset();  // its text is that of the files
    if (known.has_host_copies) {
      known.host = std::get<1>(std::move(loaded));
    } else {
      device_.remove(known);  // until it is put there
      put(known, std::get<0>(std::move(loaded)));
    }
  } catch (const std::exception&) {
    known.failure = std::current_exception();
    known.has_host_copies ? host_.remove(known) : device_.remove(known);
  }
}

void AdapterTiers::end_move(KnownAdapter& known) noexcept {
  const std::shared_ptr<AdapterMove> move = std::exchange(known.move, nullptr);
  counts_.seconds += seconds_since(move->begin);
  device_.remove(known);  // until it is put there
  try {
    put(known, std::move(move->moving.adapter));
  } catch (const std::exception&) {
    known.failure = std::current_exception();
  }
}

void AdapterTiers::put(KnownAdapter& known, ModelRunner::PreparedAdapter prepared) {
  auto weights = std::make_shared<AdapterWeights>();
  weights->slot = runner_.add_adapter(std::move(prepared));
  known.weights = std::move(weights);
  device_.add(known);
  ++counts_.num_loads;
}

void AdapterTiers::evict(KnownAdapter& known) noexcept {
  ++counts_.num_evictions;
  drop(known);
}

void AdapterTiers::drop(KnownAdapter& known) noexcept {
  if (known.weights == nullptr) return;
  runner_.remove_adapter(known.weights->slot);
  known.weights = nullptr;
  device_.remove(known);
}

void AdapterTiers::drop_host_copy(KnownAdapter& known) noexcept {
  if (known.host == nullptr) return;
  known.host = nullptr;
  host_.remove(known);
}

void AdapterTiers::use(KnownAdapter& known) noexcept {
  known.last_used = ++num_uses_;
  ++counts_.num_uses;
}

bool AdapterTiers::has_room_to_read(const KnownAdapter& known) const {
  const bool has_device_room = known.num_bytes <= limits_.memory_bytes - device_.bytes;
  const bool has_host_room = known.num_bytes <= limits_.host_memory_bytes - host_.bytes;
  return known.has_host_copies ? has_host_room : has_device_room;
}

/// Forgets copies until another one finds room; the last one goes to who may use its memory. One
/// whose adapter is on the device may always go: nobody waits for it.
bool AdapterTiers::make_host_room(const KnownAdapter& known,
                                  std::shared_ptr<AdapterHostCopy>& last) noexcept {
  while (known.num_bytes > limits_.host_memory_bytes - host_.bytes) {
    KnownAdapter* oldest = nullptr;
    for (KnownAdapter* other : host_.adapters) {
      const bool may_go = other->host != nullptr && other->move == nullptr &&
                          (other->weights != nullptr || !other->is_wanted_before(known));
      if (may_go && (oldest == nullptr || other->last_used < oldest->last_used)) oldest = other;
    }
    if (oldest == nullptr) return false;
    last = oldest->host;
    drop_host_copy(*oldest);
  }
  return true;
}

int64_t AdapterTiers::num_on_device() const {
  return std::ranges::count_if(device_.adapters,
                               [](const auto* a) { return a->weights != nullptr; });
}

void AdapterTiers::Tier::add(KnownAdapter& known) noexcept {
  bytes += known.num_bytes;
  adapters.push_back(&known);
}

void AdapterTiers::Tier::remove(KnownAdapter& known) noexcept {
  bytes -= known.num_bytes;
  std::erase(adapters, &known);
}

}  // namespace heddle
