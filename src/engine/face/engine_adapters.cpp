// The functions of heddle::Engine that are about adapters.
#include <utility>

#include "heddle/core/cuda_context.h"
#include "heddle/core/error.h"

#include "engine/adapters/row_adapters.h"
#include "engine/face/engine_state.h"
#include "model/adapters/open_adapter.h"
#include "model/adapters/peft_adapter.h"

namespace heddle {

struct PreparedAdapter::State : AdapterStore::Prepared {};
PreparedAdapter::PreparedAdapter(std::unique_ptr<State> state) : state_(std::move(state)) {}
PreparedAdapter::PreparedAdapter(PreparedAdapter&&) noexcept = default;
PreparedAdapter& PreparedAdapter::operator=(PreparedAdapter&&) noexcept = default;
PreparedAdapter::~PreparedAdapter() = default;

/// Keys and values of a longer sequence are computed again there, and with one adapter.
void Engine::State::check_may_switch() const {
  if (keys_depend_on_length(config)) {
    throw_error(ErrorCode::kUnsupported, options.model_path,
                ": the model's rotation depends on the length of a sequence, so requests that run "
                "cannot go on with another adapter; replace it with running \"finish\"");
  }
}

PreparedAdapter Engine::stage_adapter(const std::string& folder) const {
  using State = PreparedAdapter::State;
  auto staged = std::make_unique<State>(State{state_->adapters.stage(folder)});
  if (state_->model_drafter != nullptr) state_->model_drafter->check_adapter(*staged->known);
  return PreparedAdapter(std::move(staged));
}

PreparedAdapter Engine::stage_adapter(const AdapterContent& content) const {
  using State = PreparedAdapter::State;
  return PreparedAdapter(std::make_unique<State>(State{state_->adapters.stage(content)}));
}

void Engine::check_adapter(PreparedAdapter& adapter) const {
  state_->adapters.check(*adapter.state_);
}

PreparedAdapter Engine::prepare_adapter(const std::string& folder) const {
  PreparedAdapter adapter = stage_adapter(folder);
  check_adapter(adapter);
  return adapter;
}

PreparedAdapter Engine::prepare_adapter(const AdapterContent& content) const {
  PreparedAdapter adapter = stage_adapter(content);
  check_adapter(adapter);
  return adapter;
}

bool Engine::needs_copy(const PreparedAdapter& adapter) const {
  return adapter.state_->known->data.stage() == AdapterStage::kStaged;
}

void Engine::begin_copy(PreparedAdapter& adapter) { state_->adapters.begin_copy(*adapter.state_); }

void Engine::wait_for_copy(const PreparedAdapter& adapter) const {
  const ScopedDevice on_device(device_of(state_->options));
  if (const auto& copied = adapter.state_->copied) copied->wait();
}

AdapterInfo Engine::add_adapter(const std::string& name, PreparedAdapter adapter) {
  return state_->adapters.add(name, std::move(*adapter.state_), false);
}

/// What requests of the name have that go on with `to`; null: they do not.
AdapterHold Engine::State::switched_from(const std::string& name, const KnownAdapter& to,
                                         RunningRequests running) const {
  if (running == RunningRequests::kFinish) return nullptr;
  check_may_switch();
  AdapterHold from = adapters.known_under(name);
  if (from != nullptr) check_switch(*from, to);
  return from;
}

void Engine::State::switch_adapter(AdapterHold from, const AdapterHold& to) {
  if (from == nullptr) return;
  queue.switch_adapter(from, to);
  from = nullptr;
  adapters.free_unused();
}

AdapterInfo Engine::replace_adapter(const std::string& name, PreparedAdapter adapter,
                                    RunningRequests running) {
  State& s = *state_;
  const AdapterHold known = adapter.state_->known;
  AdapterHold old = s.switched_from(name, *known, running);
  AdapterInfo info = s.adapters.add(name, std::move(*adapter.state_), true);
  s.switch_adapter(std::move(old), known);
  return info;
}

void Engine::roll_back_adapter(const std::string& name, int64_t version, RunningRequests running) {
  State& s = *state_;
  const AdapterHold back = s.adapters.older_version(name, version);
  AdapterHold old = s.switched_from(name, *back, running);
  s.adapters.roll_back(name, back);
  s.switch_adapter(std::move(old), back);
}

void Engine::keep_versions(const std::string& name, int count) {
  HEDDLE_CHECK(count >= 0 && count <= kMaxKeptVersions, "keep_versions is ", count,
               ", expected 0 to ", kMaxKeptVersions);
  state_->adapters.keep_versions(name, static_cast<size_t>(count));
}

AdapterInfo Engine::add_adapter(const std::string& name, const std::string& folder) {
  state_->adapters.check_free(name);
  return add_adapter(name, prepare_adapter(folder));
}

AdapterInfo Engine::replace_adapter(const std::string& name, const std::string& folder,
                                    RunningRequests running) {
  return replace_adapter(name, prepare_adapter(folder), running);
}

bool Engine::remove_adapter(const std::string& name) { return state_->adapters.remove(name); }

std::optional<AdapterReceipt> Engine::adapter_receipt(const std::string& name,
                                                      ReceiptNorms norms) const {
  return state_->adapters.receipt(name, norms);
}

std::vector<std::string> adapters_in(const std::string& folder) {
  return model::adapters_in(folder);
}

std::string find_adapter(const std::string& adapter_dir, const std::string& name) {
  return AdapterFolder(adapter_dir).find(name);
}

std::string find_adapter_path(const std::string& path) { return model::find_adapter_path(path); }

std::vector<AdapterState> Engine::adapter_states() const { return state_->adapters.states(); }

bool Engine::has_adapter(const std::string& name) const { return state_->adapters.has(name); }

std::vector<std::string> Engine::adapter_names() const { return state_->adapters.names(); }

}  // namespace heddle
