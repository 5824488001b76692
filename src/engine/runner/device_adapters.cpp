#include "engine/runner/device_adapters.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "heddle/core/cuda_context.h"

#include "engine/options/room_for.h"
#include "engine/runner/engine_context.h"
#include "model/adapters/contents/adapter_contents.h"

namespace heddle {
namespace {

constexpr const char* kLessOnDevice =
    "a smaller kv_memory (--kv-memory) or adapter_memory (--adapter-memory)";

}  // namespace

DeviceAdapters::DeviceAdapters(const EngineContext& context, const model::Decoder& model)
    : context_(context),
      model_(model),
      norms_(model.weights(), model.block()),
      memory_(context.exec().device),
      steps_so_far_(context.exec().device),
      tables_{.layers = {model.config().dims(), model::LoraForm::of(context.exec().device.type,
                                                                    model.weights().activations)},
              .vocabularies = {}} {}

int DeviceAdapters::max_rank_of(const model::Adapter& adapter) const {
  int max_rank = 0;
  for (const model::AdapterPair& pair : adapter.pairs()) {
    max_rank = std::max(max_rank, tables_.layers.fitting_rank(pair.rank));
  }
  return max_rank;
}

std::vector<model::SliceAffine> DeviceAdapters::affines_of(const ExecContext& ctx,
                                                           const model::Adapter& adapter) const {
  return model::slice_affines(ctx, adapter, model_.config().block(), model_.weights());
}

/// The dtype to which weights of adapters are rounded on a GPU.
std::optional<DType> DeviceAdapters::rounded_to() const {
  if (context_.exec().device.type == DeviceType::kCpu) return {};
  return model_.weights().activations;
}

/// Null: it has none, or none are used.
const model::MedusaFiles* DeviceAdapters::used_heads(const model::Adapter& adapter) const {
  return uses_heads_ ? adapter.heads().get() : nullptr;
}

void DeviceAdapters::load_heads(const model::Adapter& adapter) const {
  if (used_heads(adapter) != nullptr) adapter.heads()->load(rounded_to());
}

AdapterIdentity DeviceAdapters::identify(const model::Adapter& adapter) const {
  const model::AdapterContents contents(adapter, rounded_to(), secret_);
  contents.check_finite();
  return {contents.digest(),
          std::make_shared<LoadedReceipt>(receipt_of(adapter, contents.fingerprint()))};
}

AdapterData DeviceAdapters::prepare(const model::Adapter& adapter) const {
  const ScopedDevice on_device(context_.exec().device);
  const ExecContext ctx = context_.loading();
  const model::DecoderWeights& weights = model_.weights();
  const model::MedusaFiles* const heads = used_heads(adapter);
  return room_for("the adapter", kLessOnDevice, [&] {
    return AdapterData{
        .moving = {{.layers = tables_.layers.prepare(ctx, adapter, affines_of(ctx, adapter)),
                    .vocabulary = model::AdapterVocabularies::make(
                        ctx, adapter, weights.embedding, weights.output, model_.config().tied_head,
                        weights.activations),
                    .heads = heads == nullptr ? nullptr
                                              : std::make_shared<const model::MedusaHeads>(
                                                    ctx, *heads, weights.activations),
                    .arrived = {}}},
        .max_rank = max_rank_of(adapter)};
  });
}

std::optional<std::vector<model::PlaceNorms>> DeviceAdapters::measure(
    const model::Adapter& adapter, const std::atomic<bool>& stop) const {
  const ScopedDevice on_device(context_.exec().device);
  return norms_.measure(context_.loading(), adapter, stop);
}

bool DeviceAdapters::can_stage(const model::Adapter& adapter) const {
  return context_.exec().device.type != DeviceType::kCpu && adapter.embedding().is_empty() &&
         adapter.head().is_empty() && used_heads(adapter) == nullptr;
}

AdapterData DeviceAdapters::stage(const model::Adapter& adapter, AdapterData old) const {
  const ScopedDevice on_device(context_.exec().device);
  const ExecContext ctx = context_.loading();
  const auto memory = [&](size_t num_bytes) {
    const bool is_as_large = old.host && old.host->num_bytes() == num_bytes;
    StagingBytes reused = old.host ? old.host->release() : StagingBytes();
    if (!is_as_large) reused = {};  // before more is allocated
    if (!is_as_large || num_bytes == 0) return StagingBytes(ctx.device, num_bytes);
    return reused;
  };
  return room_for("a copy of the adapter in host memory",
                  "a smaller adapter_host_memory (--adapter-host-memory)", [&] {
                    return AdapterData{.host = tables_.layers.stage(
                                           ctx, adapter, affines_of(ctx, adapter), memory),
                                       .max_rank = max_rank_of(adapter)};
                  });
}

int64_t DeviceAdapters::num_bytes(const model::Adapter& adapter) const {
  const model::MedusaFiles* const heads = used_heads(adapter);
  return tables_.layers.num_bytes(adapter) + model::affine_bytes(adapter) +
         (heads == nullptr ? 0 : model::medusa_bytes(*heads, rounded_to())) +
         model::vocabulary_bytes(adapter, model_.config().tied_head, rounded_to());
}

std::string_view DeviceAdapters::runs_alone(const model::Adapter& adapter) const {
  const ScopedDevice on_device(context_.exec().device);
  const model::DecoderWeights& weights = model_.weights();
  return model::without_sum(context_.loading(), adapter, weights.embedding, weights.output);
}

void DeviceAdapters::begin_move(AdapterData& adapter) {
  const ScopedDevice on_device(context_.exec().device);
  const ExecContext ctx = context_.moving();
  AdapterData::Moving moving{.layers = {},
                             .vocabulary = {},
                             .heads = {},
                             .arrived = std::make_shared<DeviceEvent>(ctx.device)};
  // Memory that was freed in the order of the steps may be reused after them.
  steps_so_far_.record(context_.exec());
  steps_so_far_.hold(ctx);
  moving.layers = model::LoraTables::place(
      ctx, *adapter.host, room_for("the adapter", kLessOnDevice, [&] {
        return memory_.allocate(ctx, context_.exec().stream, adapter.host->num_bytes());
      }));
  moving.arrived->record(ctx);
  adapter.moving = std::move(moving);
}

void DeviceAdapters::add(AdapterData& adapter) {
  auto slot = std::make_shared<int32_t>(kNoAdapter);
  tables_.vocabularies.reserve();
  heads_.reserve(heads_.size() + 1);  // as above
  *slot = tables_.layers.add(context_.exec(), std::move(adapter.moving->layers));
  tables_.vocabularies.put(*slot, std::move(adapter.moving->vocabulary));
  if (static_cast<size_t>(*slot) == heads_.size()) heads_.emplace_back();
  heads_[static_cast<size_t>(*slot)] = std::move(adapter.moving->heads);
  adapter.moving.reset();
  adapter.slot = std::move(slot);
}

void DeviceAdapters::remove(AdapterData& adapter) noexcept {
  const ScopedDevice on_device(context_.exec().device);
  tables_.layers.remove(context_.exec(), *adapter.slot);
  tables_.vocabularies.put(*adapter.slot, {});
  heads_[static_cast<size_t>(*adapter.slot)] = nullptr;
  adapter.slot = nullptr;
  adapter.forget_digest_if_stored();
}

}  // namespace heddle
