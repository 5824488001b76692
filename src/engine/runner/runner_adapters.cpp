#include <algorithm>
#include <cstring>
#include <utility>

#include "heddle/core/cuda_context.h"

#include "engine/options/room_for.h"
#include "engine/runner/model_runner.h"
#include "model/adapters/finite_values.h"

// ModelRunner's functions that bring adapters to its device and take them off.

namespace heddle {
namespace {

constexpr const char* kLessOnDevice =
    "a smaller kv_memory (--kv-memory) or adapter_memory (--adapter-memory)";

}  // namespace

int ModelRunner::max_rank_of(const model::Adapter& adapter) const {
  int max_rank = 0;
  for (const model::AdapterPair& pair : adapter.pairs()) {
    max_rank = std::max(max_rank, adapters_.layers.fitting_rank(pair.rank));
  }
  return max_rank;
}

std::vector<model::SliceAffine> ModelRunner::affines_of(const ExecContext& ctx,
                                                        const model::Adapter& adapter) const {
  return model::slice_affines(ctx, adapter, model_.config().block(), model_.weights());
}

/// The dtype to which weights of adapters are rounded on a GPU.
std::optional<DType> ModelRunner::rounded_to() const {
  if (context_.exec().device.type == DeviceType::kCpu) return {};
  return model_.weights().activations;
}

ModelRunner::PreparedAdapter ModelRunner::prepare_adapter(const model::Adapter& adapter) const {
  const ScopedDevice on_device(context_.exec().device);
  const ExecContext ctx = context_.loading();
  const model::DecoderWeights& weights = model_.weights();
  model::check_finite(adapter, rounded_to());
  return room_for("the adapter", kLessOnDevice, [&] {
    return PreparedAdapter{
        .layers = adapters_.layers.prepare(ctx, adapter, affines_of(ctx, adapter)),
        .vocabulary =
            model::AdapterVocabularies::make(ctx, adapter, weights.embedding, weights.output,
                                             model_.config().tied_head, weights.activations),
        .max_rank = max_rank_of(adapter)};
  });
}

bool ModelRunner::can_stage(const model::Adapter& adapter) const {
  return context_.exec().device.type != DeviceType::kCpu && adapter.embedding().is_empty() &&
         adapter.head().is_empty();
}

ModelRunner::HostAdapter ModelRunner::stage_adapter(const model::Adapter& adapter,
                                                    HostAdapter old) const {
  const ScopedDevice on_device(context_.exec().device);
  const ExecContext ctx = context_.loading();
  model::check_finite(adapter, rounded_to());
  const auto memory = [&](size_t num_bytes) {
    const bool is_as_large = old.layers.num_bytes() == num_bytes;
    StagingBytes reused = old.layers.release();
    if (!is_as_large) reused = {};  // before more is asked for
    if (!is_as_large || num_bytes == 0) return StagingBytes(ctx.device, num_bytes);
    std::memset(reused.get(), 0, num_bytes);
    return reused;
  };
  return room_for("a copy of the adapter in host memory",
                  "a smaller adapter_host_memory (--adapter-host-memory)", [&] {
                    return HostAdapter{.layers = adapters_.layers.stage(
                                           ctx, adapter, affines_of(ctx, adapter), memory),
                                       .max_rank = max_rank_of(adapter)};
                  });
}

ModelRunner::MovingAdapter ModelRunner::begin_move(const HostAdapter& adapter) {
  const ScopedDevice on_device(context_.exec().device);
  const ExecContext ctx = context_.moving();
  MovingAdapter moving{.adapter = {.max_rank = adapter.max_rank},
                       .arrived = DeviceEvent(ctx.device)};
  // Memory that was given back in the order of the steps is free to take behind them.
  steps_so_far_.record(context_.exec());
  steps_so_far_.hold(ctx);
  moving.adapter.layers = model::LoraTables::place(
      ctx, adapter.layers, room_for("the adapter", kLessOnDevice, [&] {
        return adapter_memory_.allocate(ctx, context_.exec().stream, adapter.layers.num_bytes());
      }));
  moving.arrived.record(ctx);
  return moving;
}

int64_t ModelRunner::adapter_bytes(const model::Adapter& adapter) const {
  return adapters_.layers.num_bytes(adapter) + model::affine_bytes(adapter) +
         model::vocabulary_bytes(adapter, model_.config().tied_head, rounded_to());
}

void ModelRunner::remove_adapter(int32_t slot) noexcept {
  const ScopedDevice on_device(context_.exec().device);
  adapters_.layers.remove(context_.exec(), slot);
  adapters_.vocabularies.put(slot, {});
}

}  // namespace heddle
