// The functions of heddle::Engine that are about adapters.
#include <utility>

#include "engine/face/engine_state.h"
#include "model/adapters/open_adapter.h"
#include "model/adapters/peft_adapter.h"

namespace heddle {

struct PreparedAdapter::State {
  AdapterHold known;
  AdapterInfo info;
};
PreparedAdapter::PreparedAdapter(std::unique_ptr<State> state) : state_(std::move(state)) {}
PreparedAdapter::PreparedAdapter(PreparedAdapter&&) noexcept = default;
PreparedAdapter& PreparedAdapter::operator=(PreparedAdapter&&) noexcept = default;
PreparedAdapter::~PreparedAdapter() = default;

PreparedAdapter Engine::prepare_adapter(const std::string& folder) const {
  using State = PreparedAdapter::State;
  auto [known, info] = state_->adapters.prepare(folder);
  return PreparedAdapter(std::make_unique<State>(State{std::move(known), std::move(info)}));
}

PreparedAdapter Engine::prepare_adapter(const AdapterContent& content) const {
  using State = PreparedAdapter::State;
  auto [known, info] = state_->adapters.prepare(content);
  return PreparedAdapter(std::make_unique<State>(State{std::move(known), std::move(info)}));
}

AdapterInfo Engine::add_adapter(const std::string& name, PreparedAdapter adapter) {
  return state_->adapters.add(name, adapter.state_->known, std::move(adapter.state_->info), false);
}

AdapterInfo Engine::replace_adapter(const std::string& name, PreparedAdapter adapter) {
  return state_->adapters.add(name, adapter.state_->known, std::move(adapter.state_->info), true);
}

AdapterInfo Engine::add_adapter(const std::string& name, const std::string& folder) {
  state_->adapters.check_free(name);
  return add_adapter(name, prepare_adapter(folder));
}

AdapterInfo Engine::replace_adapter(const std::string& name, const std::string& folder) {
  return replace_adapter(name, prepare_adapter(folder));
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
