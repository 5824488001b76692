#include "engine/adapters/adapter_tiers.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "heddle/core/error.h"

#include "engine/adapters/settled_read.h"
#include "model/adapters/contents/adapter_contents.h"
#include "model/adapters/open_adapter.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxReading = 2;  // at once: they take time from the steps

void wait_for(const KnownAdapter& known) {
  if (known.read.valid()) return known.read.wait();
  known.data.moving->arrived->wait();
}

bool has_ended(const KnownAdapter& known) {
  if (!known.read.valid()) return known.data.moving->arrived->has_passed();
  return known.read.wait_for(Clock::duration::zero()) == std::future_status::ready;
}

}  // namespace

AdapterTiers::~AdapterTiers() {
  for (const KnownAdapter* known : in_flight_) wait_for(*known);
}

void AdapterTiers::reserve(size_t num_adapters) {
  for (auto* list : {&device_.adapters, &host_.adapters, &in_flight_}) {
    if (list->capacity() < num_adapters) list->reserve(2 * num_adapters);
  }
}

AdapterStage AdapterTiers::stage(const KnownAdapter& known) {
  if (known.read.valid()) {
    return known.has_host_copies ? AdapterStage::kReading : AdapterStage::kMoving;
  }
  const AdapterStage stage = known.data.stage();
  // Without copies in host memory the read is a part of the move.
  return stage == AdapterStage::kStored && !known.has_host_copies ? AdapterStage::kStaged : stage;
}

bool AdapterTiers::poll() noexcept {
  bool any = false;
  for (size_t i = 0; i < in_flight_.size();) {
    KnownAdapter& known = *in_flight_[i];
    if (!has_ended(known)) {
      ++i;
      continue;
    }
    any = true;
    in_flight_[i] = in_flight_.back();
    in_flight_.pop_back();
    end(known);
  }
  return any;
}

bool AdapterTiers::wait() noexcept {
  if (in_flight_.empty()) return false;
  wait_for(*in_flight_.front());
  return true;
}

void AdapterTiers::begin_read(KnownAdapter& known) noexcept {
  if (num_reading_ >= kMaxReading) return;
  AdapterData old;
  if (!make_host_room(known, old)) return;
  try {
    read(known, std::move(old));
    host_.add(known);
  } catch (const std::exception&) {
    known.failure = std::current_exception();
  }
}

bool AdapterTiers::begin_move(KnownAdapter& known) noexcept {
  try {
    if (!known.data.host) {
      if (num_reading_ >= kMaxReading) return false;
      read(known, {});
    } else {
      runner_.adapters().begin_move(known.data);
      known.begun = Clock::now();
      in_flight_.push_back(&known);
      ++counts_.num_moves;
    }
    device_.add(known);
  } catch (const std::exception&) {
    known.failure = std::current_exception();
  }
  return true;
}

/// An adapter of the folder as its rows were checked with.
std::unique_ptr<model::Adapter> AdapterTiers::load_found(const KnownAdapter& known,
                                                         std::optional<uint64_t> digest) const {
  const auto look = [&] {
    files::FileStamps stamps = stamps_of(known.path);
    HEDDLE_CHECK(stamps == *known.found, known.path,
                 ": has changed while the request waited; submit it again");
    return stamps;
  };
  (void)files::wait_until_settled(known.path, kAdapterPatience, look);
  auto opened = model::open_adapter(known.path, files_.config(), known.bounds);
  opened->check_fits(files_.config().dims());
  opened->load();
  std::as_const(runner_).adapters().load_heads(*opened);
  (void)look();
  HEDDLE_CHECK(!digest || digest_of(known.path, known.bounds) == *digest, known.path,
               ": has changed while the request waited; submit it again");
  return opened;
}

/// Begins to read an adapter of the folder, or what a merge is made of, and to merge it. Allocates
/// before it begins.
void AdapterTiers::read(KnownAdapter& known, AdapterData old) {
  const std::optional<uint64_t> digest = known.is_unproven ? known.young_digest : std::nullopt;
  known.read = std::async(std::launch::async, [this, &known = std::as_const(known), digest,
                                               old = std::move(old)]() mutable {
    const DeviceAdapters& adapters = std::as_const(runner_).adapters();
    const auto opened = known.recipe ? load_merge(*known.recipe, files_, adapters.secret())
                                     : load_found(known, digest);
    const AdapterIdentity identity = adapters.identify(*opened);
    AdapterData data =
        known.has_host_copies ? adapters.stage(*opened, std::move(old)) : adapters.prepare(*opened);
    data.set(identity);
    // A merge has no name to ask for its norms by.
    if (!known.recipe) {
      data.receipt->measure_by(measure_again(known, data.receipt->facts().digest));
    }
    return data;
  });
  known.is_unproven = false;
  known.begun = Clock::now();
  in_flight_.push_back(&known);
  ++num_reading_;
  ++counts_.num_reads;
}

/// Computes the norms of an adapter whose values are not kept: reads them again.
LoadedReceipt::Measure AdapterTiers::measure_again(const KnownAdapter& known,
                                                   const std::string& digest) const {
  return [this, path = known.path, bounds = known.bounds, digest] {
    const auto opened = model::open_adapter(path, files_.config(), bounds);
    opened->check_fits(files_.config().dims());
    opened->load();
    HEDDLE_CHECK(model::AdapterContents(*opened).fingerprint() == digest, path,
                 ": has changed since it was loaded, so there are no norms of what was");
    return std::as_const(runner_).adapters().measure(*opened, is_ending_);
  };
}

/// Of a read or a move.
void AdapterTiers::end(KnownAdapter& known) noexcept {
  const bool was_read = known.read.valid();
  counts_.seconds += std::chrono::duration<double>(Clock::now() - known.begun).count();
  num_reading_ -= was_read ? 1 : 0;
  const bool is_staged = was_read && known.has_host_copies;
  try {
    if (was_read) {
      AdapterData data = known.read.get();
      on_read_(known.path, data.receipt->facts());
      known.receipt.set(data.receipt);
      known.data = std::move(data);
    }
    if (is_staged) return;
    runner_.add_adapter(known.data);
    ++counts_.num_loads;
  } catch (const std::exception&) {
    known.failure = std::current_exception();
    if (was_read) known.is_unproven = known.young_digest.has_value();
    (is_staged ? host_ : device_).remove(known);
  }
}

void AdapterTiers::put(KnownAdapter& known) {
  runner_.add_adapter(known.data);
  device_.add(known);
  ++counts_.num_loads;
}

void AdapterTiers::evict(KnownAdapter& known) noexcept {
  ++counts_.num_evictions;
  drop(known);
}

void AdapterTiers::drop(KnownAdapter& known) noexcept {
  if (known.data.slot == nullptr) return;
  runner_.adapters().remove(known.data);
  device_.remove(known);
}

void AdapterTiers::drop_host_copy(KnownAdapter& known) noexcept {
  if (!known.data.host) return;
  known.data.host.reset();
  known.data.forget_digest_if_stored();
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

/// Drops copies until another one finds room; the last one goes to the read that may reuse its
/// memory. One whose adapter is resident may always be dropped: no row waits for it.
bool AdapterTiers::make_host_room(const KnownAdapter& known, AdapterData& last) noexcept {
  while (known.num_bytes > limits_.host_memory_bytes - host_.bytes) {
    KnownAdapter* oldest = nullptr;
    for (KnownAdapter* other : host_.adapters) {
      const AdapterStage stage = other->data.stage();
      const bool may_go = other->data.host && stage != AdapterStage::kMoving &&
                          (stage == AdapterStage::kResident || !other->is_wanted_before(known));
      if (may_go && (oldest == nullptr || other->last_used < oldest->last_used)) oldest = other;
    }
    if (oldest == nullptr) return false;
    last.host = std::exchange(oldest->data.host, std::nullopt);
    oldest->data.forget_digest_if_stored();
    host_.remove(*oldest);
  }
  return true;
}

int64_t AdapterTiers::num_on_device() const {
  return std::ranges::count_if(device_.adapters,
                               [](const auto* known) { return known->data.slot != nullptr; });
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
