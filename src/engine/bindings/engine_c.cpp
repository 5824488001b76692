#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heddle/c_engine.h"
#include "heddle/config.h"
#include "heddle/core/error.h"

#include "capi/last_error.h"
#include "engine/bindings/engine_arguments.h"
#include "engine/bindings/engine_handle.h"
#include "files/printable.h"

namespace heddle::capi {
namespace {

/// Calls on_warning with what is odd about the model's files; with `strict` it is an error.
void report_warnings(const EngineThread& thread) {
  const EngineOptions& options = thread.options();
  const auto report = [&](const std::string& what) {
    HEDDLE_CHECK(!options.strict, what);
    if (options.on_warning) options.on_warning(what);
  };
  const ModelInfo& model = thread.model();
  for (const std::string& key : model.unread_settings) {
    report(model.settings_path + ": " + files::printable(key) +
           " is a setting that heddle does not know");
  }
  std::ranges::for_each(model.warnings, report);
  for (const std::string& what : model.generation.not_done) {
    report(model.generation.path + ": " + what + ", which heddle does not support");
  }
}

heddle_finish_reason reason_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return HEDDLE_FINISH_STOP;
    case FinishReason::kLength: return HEDDLE_FINISH_LENGTH;
    case FinishReason::kError: return HEDDLE_FINISH_ERROR;
    case FinishReason::kCancelled: return HEDDLE_FINISH_CANCELLED;
  }
  return HEDDLE_FINISH_ERROR;
}

heddle_request_error error_code_of(RequestError error) {
  switch (error) {
    case RequestError::kNone: return HEDDLE_ERROR_NONE;
    case RequestError::kInvalidArgument: return HEDDLE_ERROR_INVALID_ARGUMENT;
    case RequestError::kUnsupported: return HEDDLE_ERROR_UNSUPPORTED;
    case RequestError::kUnknownAdapter: return HEDDLE_ERROR_UNKNOWN_ADAPTER;
    case RequestError::kOutOfMemory: return HEDDLE_ERROR_OUT_OF_MEMORY;
    case RequestError::kEngineEnded: return HEDDLE_ERROR_ENGINE_ENDED;
    case RequestError::kNotFinite: return HEDDLE_ERROR_NOT_FINITE;
  }
  return HEDDLE_ERROR_INVALID_ARGUMENT;
}

// An event points to those of its completion.
static_assert(sizeof(heddle_adapter_switch) == sizeof(AdapterSwitch) &&
              offsetof(heddle_adapter_switch, position) == offsetof(AdapterSwitch, position) &&
              offsetof(heddle_adapter_switch, token) == offsetof(AdapterSwitch, token));

heddle_draft_counts counts_of(const DraftCounts& counts) {
  return {counts.drafted, counts.accepted};
}

static_assert(kMaxRowDrafts == HEDDLE_MAX_ROW_DRAFTS);
static_assert(kNumDraftSources == HEDDLE_NUM_DRAFT_SOURCES &&
              static_cast<int>(DraftSource::kEagle3) == HEDDLE_DRAFT_EAGLE3);

/// The texts as C sees them; none where there is no memory.
std::vector<heddle_string> views_of(const std::vector<std::string>& texts) noexcept {
  std::vector<heddle_string> views;
  try {
    for (const std::string& text : texts) views.push_back(view_of(text));
  } catch (const std::bad_alloc&) {
    views.clear();
  }
  return views;
}

std::vector<heddle_string> labels_of(const Event& event) noexcept {
  return event.completion ? views_of(event.completion->labels) : std::vector<heddle_string>();
}

/// The event as C sees it; points into `event` and to its labels.
heddle_engine_event event_of(const Event& event, const std::vector<heddle_string>& labels) {
  static const Completion nothing;
  const Completion& completion = event.completion ? *event.completion : nothing;
  return {
      .request = event.request,
      .text = view_of(event.text),
      .finish_reason = event.completion ? reason_of(completion.finish_reason) : HEDDLE_FINISH_NONE,
      .answer = view_of(completion.text),
      .token_ids = completion.token_ids.data(),
      .logprobs = completion.logprobs.data(),
      .num_tokens = completion.token_ids.size(),
      .top_token_ids = completion.top_token_ids.data(),
      .top_logprobs = completion.top_logprobs.data(),
      .num_top_logprobs = completion.top_logprobs.size(),
      .prompt_logprobs = completion.prompt_logprobs.data(),
      .num_prompt_logprobs = completion.prompt_logprobs.size(),
      .prompt_top_token_ids = completion.prompt_top_token_ids.data(),
      .prompt_top_logprobs = completion.prompt_top_logprobs.data(),
      .num_prompt_top_logprobs = completion.prompt_top_logprobs.size(),
      .values = completion.values.data(),
      .num_values = completion.values.size(),
      .labels = labels.empty() ? nullptr : labels.data(),
      .prompt_tokens = completion.prompt_tokens,
      .cached_tokens = completion.cached_tokens,
      .stop = view_of(completion.stop),
      .stop_token = completion.stop_token,
      .wait_seconds = completion.wait_seconds,
      .drafts = counts_of(completion.drafts),
      .prediction = counts_of(completion.prediction),
      .error = view_of(completion.error),
      .error_code = error_code_of(completion.error_code),
      .adapter_digest = view_of(completion.adapter_digest),
      .adapter_switches =
          reinterpret_cast<const heddle_adapter_switch*>(completion.adapter_switches.data()),
      .num_adapter_switches = completion.adapter_switches.size(),
      .earlier_digests = view_of(completion.earlier_digests)};
}

/// An event that a caller has taken, with what it points to.
struct TakenEvent : heddle_engine_event {
  void set(Event&& taken) noexcept {
    event = std::move(taken);
    labels_of_event = labels_of(event);
    static_cast<heddle_engine_event&>(*this) = event_of(event, labels_of_event);
  }
  Event event{};
  std::vector<heddle_string> labels_of_event{};
};

class CallbackSink final : public EventSink {
 public:
  CallbackSink(heddle_engine_callback on_event, void* user_data)
      : on_event_(on_event), user_data_(user_data) {}

  void expect(RequestId /*request*/) override {}
  void forget(RequestId /*request*/) noexcept override {}
  void tell(Event&& event) noexcept override {
    const std::vector<heddle_string> labels = labels_of(event);
    const heddle_engine_event view = event_of(event, labels);
    on_event_(user_data_, &view);
  }

 private:
  heddle_engine_callback on_event_;
  void* user_data_;
};

}  // namespace
}  // namespace heddle::capi

using heddle::capi::guard;
using heddle::capi::required;

namespace {

/// Loads an adapter from a path or from memory, and reports what is odd about it.
template <class Source>
void load(heddle::EngineThread& thread, const std::string& name, const Source& source, bool replace,
          heddle::RunningRequests running = heddle::RunningRequests::kFinish) {
  const heddle::AdapterInfo info = thread.load_adapter(name, source, replace, running);
  const auto& on_warning = thread.options().on_warning;
  if (on_warning) std::ranges::for_each(info.warnings, on_warning);
}

/// Where a request's events go.
std::shared_ptr<heddle::EventSink> sink_of(const heddle_engine& engine,
                                           const heddle_engine_request& request) {
  if (request.on_event == nullptr) return engine.polled;
  return std::make_shared<heddle::capi::CallbackSink>(request.on_event, request.user_data);
}

}  // namespace

int32_t heddle_engine_abi_version() { return HEDDLE_ENGINE_ABI_VERSION; }
const char* heddle_engine_version() { return heddle::kVersion; }
const char* heddle_engine_last_error() { return heddle::capi::last_message(); }

void heddle_engine_options_init(heddle_engine_options* options) {
  const heddle::EngineOptions defaults;
  *options = {.device = {nullptr, 0},
              .max_batch = defaults.max_batch,
              .num_threads = defaults.num_threads,
              .page_size = defaults.page_size,
              .prefill_chunk = defaults.prefill_chunk,
              .max_context = defaults.max_context,
              .kv_memory = defaults.kv_memory,
              .prefix_cache = defaults.prefix_cache,
              .kv_host_memory = defaults.kv_host_memory,
              .kv_cache_dir = {nullptr, 0},
              .kv_disk_memory = defaults.kv_disk_memory,
              .kv_disk_salted = defaults.kv_disk_salted,
              .admit = {nullptr, 0},
              .fairness = {nullptr, 0},
              .kv_type = {nullptr, 0},
              .weights = {nullptr, 0},
              .activations = {nullptr, 0},
              .speculation = {},
              .adapter_dir = {nullptr, 0},
              .adapter_memory = defaults.adapter_memory,
              .adapter_host_memory = defaults.adapter_host_memory,
              .max_batch_adapters = defaults.max_batch_adapters,
              .max_batch_adapter_bytes = defaults.max_batch_adapter_bytes,
              .generation_config = {nullptr, 0},
              .on_load = nullptr,
              .user_data = nullptr,
              .strict = defaults.strict,
              .on_warning = nullptr};
}

void heddle_engine_request_init(heddle_engine_request* request) {
  const heddle::Request defaults;
  *request = {};
  request->max_tokens = defaults.max_tokens;
  request->temperature = defaults.sampling.temperature;
  request->top_k = defaults.sampling.top_k;
  request->top_p = defaults.sampling.top_p;
  request->min_p = defaults.sampling.min_p;
  request->seed = defaults.sampling.seed;
  request->repetition_penalty = defaults.sampling.repetition_penalty;
  request->add_generation_prompt = defaults.add_generation_prompt;
  request->add_special_tokens = -1;
  request->thinking.max_tokens = defaults.thinking.max_tokens;
  request->tenant_weight = defaults.tenant_weight;
  request->priority = defaults.priority;
  request->values.normalize = -1;
  request->values.activates = defaults.values.activates;
}

heddle_status heddle_engine_create(heddle_engine** engine, heddle_string model,
                                   const heddle_engine_options* options) {
  return guard([&] {
    required("engine", engine) = nullptr;
    heddle_engine_options defaults;
    heddle_engine_options_init(&defaults);
    auto made = std::make_unique<heddle_engine>(
        heddle::capi::options_of(model, options != nullptr ? *options : defaults));
    heddle::capi::report_warnings(made->thread);
    *engine = made.release();
  });
}

void heddle_engine_destroy(heddle_engine* engine) { delete engine; }

heddle_status heddle_engine_get_model(heddle_engine* engine, heddle_engine_model* model) {
  return guard([&] {
    using heddle::capi::view_of;
    const heddle::EngineThread& thread = required("engine", engine).thread;
    const heddle::ModelInfo& info = thread.model();
    required("model", model) = {.path = view_of(info.path),
                                .name = view_of(info.name),
                                .architecture = view_of(info.architecture),
                                .num_layers = info.num_layers,
                                .hidden_size = info.hidden_size,
                                .vocab_size = info.vocab_size,
                                .num_parameters = info.num_parameters,
                                .weight_bytes = info.weight_bytes,
                                .max_context = thread.options().max_context,
                                .kv_memory = thread.options().kv_memory,
                                .device = view_of(thread.options().device),
                                .device_name = view_of(info.device_name),
                                .activations = view_of(info.activations)};
  });
}

heddle_status heddle_engine_apply_defaults(heddle_engine* engine, heddle_engine_request* request) {
  return guard([&] {
    heddle_engine_request& given = required("request", request);
    heddle::SamplingOptions sampling{.temperature = given.temperature,
                                     .top_k = given.top_k,
                                     .top_p = given.top_p,
                                     .min_p = given.min_p,
                                     .repetition_penalty = given.repetition_penalty};
    const heddle::ModelInfo& model = required("engine", engine).thread.model();
    model.generation.apply(sampling, given.max_tokens);
    given.temperature = sampling.temperature;
    given.top_k = sampling.top_k;
    given.top_p = sampling.top_p;
    given.min_p = sampling.min_p;
    given.repetition_penalty = sampling.repetition_penalty;
  });
}

heddle_status heddle_engine_get_load(heddle_engine* engine, heddle_engine_load* load) {
  return guard([&] {
    required("load", load) = {};
    const heddle::EngineLoad now =
        required("engine", engine).thread.call([](heddle::Engine& e) { return e.load(); });
    *load = {.num_waiting = now.num_waiting,
             .num_running = now.num_running,
             .num_pages = now.num_pages,
             .num_free_pages = now.num_free_pages,
             .num_cached_pages = now.num_cached_pages,
             .num_host_pages = now.num_host_pages,
             .num_disk_pages = now.num_disk_pages,
             .num_parked = now.num_parked,
             .num_adapters = now.num_adapters,
             .adapter_bytes = now.adapter_bytes};
  });
}

heddle_status heddle_engine_get_stats(heddle_engine* engine, heddle_engine_stats* stats) {
  return guard([&] {
    using heddle::capi::counts_of;
    required("stats", stats) = {};
    const heddle::EngineStats now =
        required("engine", engine).thread.call([](heddle::Engine& e) { return e.stats(); });
    *stats = {.prefill_seconds = now.prefill_seconds,
              .decode_seconds = now.decode_seconds,
              .lora_seconds = now.lora_seconds,
              .prefill_tokens = now.prefill_tokens,
              .decode_tokens = now.decode_tokens,
              .generated_tokens = now.generated_tokens,
              .prefill_steps = now.prefill_steps,
              .decode_steps = now.decode_steps,
              .wait_seconds = now.wait_seconds,
              .device_seconds = now.device_seconds,
              .device_gap_seconds = now.device_gap_seconds,
              .graphs = now.graphs,
              .graph_seconds = now.graph_seconds,
              .adapter_uses = now.adapter_uses,
              .adapter_loads = now.adapter_loads,
              .adapter_reads = now.adapter_reads,
              .adapter_seconds = now.adapter_seconds,
              .adapter_evictions = now.adapter_evictions,
              .prefix_tokens = now.prefix_tokens,
              .cached_tokens = now.cached_tokens,
              .host_tokens = now.host_tokens,
              .disk_tokens = now.disk_tokens,
              .parkings = now.parkings,
              .drafts = counts_of(now.drafts),
              .draft_stats = {}};
    const heddle::DraftStats& drafts = now.draft_stats;
    std::ranges::transform(drafts.by_place, stats->draft_stats.by_place, counts_of);
    std::ranges::transform(drafts.by_source, stats->draft_stats.by_source, counts_of);
  });
}

heddle_status heddle_engine_reset_prefix_cache(heddle_engine* engine) {
  return guard([&] { required("engine", engine).thread.reset_prefix_cache(); });
}

heddle_status heddle_engine_add_adapter(heddle_engine* engine, heddle_string name,
                                        heddle_string folder, bool replace) {
  return guard([&] {
    heddle::EngineThread& thread = required("engine", engine).thread;
    const std::string key = heddle::capi::string_of("name", name, heddle::capi::kMaxName);
    load(thread, key, heddle::capi::path_of("folder", folder), replace);
  });
}

heddle_status heddle_engine_switch_adapter(heddle_engine* engine, heddle_string name,
                                           heddle_string folder) {
  return guard([&] {
    heddle::EngineThread& thread = required("engine", engine).thread;
    const std::string key = heddle::capi::string_of("name", name, heddle::capi::kMaxName);
    load(thread, key, heddle::capi::path_of("folder", folder), true,
         heddle::RunningRequests::kSwitch);
  });
}

heddle_status heddle_engine_load_adapter(heddle_engine* engine, heddle_string name,
                                         heddle_string config_json, const void* safetensors,
                                         size_t num_bytes, bool replace, bool switch_running) {
  return guard([&] {
    HEDDLE_CHECK(replace || !switch_running, "switch_running needs replace");
    heddle::EngineThread& thread = required("engine", engine).thread;
    const std::string key = heddle::capi::string_of("name", name, heddle::capi::kMaxName);
    const auto* const given = static_cast<const std::byte*>(safetensors);
    const std::span bytes(&required("safetensors", given), num_bytes);
    const auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
    const heddle::AdapterContent content{
        .name = "adapter " + key,
        .config_json = heddle::capi::string_of("config_json", config_json),
        .safetensors = *copy,
        .owner = copy};
    load(thread, key, content, replace,
         switch_running ? heddle::RunningRequests::kSwitch : heddle::RunningRequests::kFinish);
  });
}

heddle_status heddle_engine_keep_versions(heddle_engine* engine, heddle_string name,
                                          int32_t count) {
  return guard([&] {
    heddle::EngineThread& thread = required("engine", engine).thread;
    const std::string key = heddle::capi::string_of("name", name, heddle::capi::kMaxName);
    thread.call([&](heddle::Engine& e) { e.keep_versions(key, count); });
  });
}

heddle_status heddle_engine_roll_back_adapter(heddle_engine* engine, heddle_string name,
                                              int64_t version, bool switch_running) {
  return guard([&] {
    heddle::EngineThread& thread = required("engine", engine).thread;
    const std::string key = heddle::capi::string_of("name", name, heddle::capi::kMaxName);
    const auto running =
        switch_running ? heddle::RunningRequests::kSwitch : heddle::RunningRequests::kFinish;
    thread.call([&](heddle::Engine& e) { e.roll_back_adapter(key, version, running); });
  });
}

heddle_status heddle_engine_remove_adapter(heddle_engine* engine, heddle_string name) {
  return guard([&] {
    heddle::EngineThread& thread = required("engine", engine).thread;
    const std::string key = heddle::capi::string_of("name", name, heddle::capi::kMaxName);
    const bool was_there = thread.call([&](heddle::Engine& e) { return e.remove_adapter(key); });
    HEDDLE_CHECK(was_there, "unknown adapter \"", key, "\"");
  });
}

heddle_status heddle_engine_has_adapter(heddle_engine* engine, heddle_string name, bool* has) {
  return guard([&] {
    required("has", has) = false;
    heddle::EngineThread& thread = required("engine", engine).thread;
    const std::string key = heddle::capi::string_of("name", name, heddle::capi::kMaxName);
    *has = thread.call([&](heddle::Engine& e) { return e.has_adapter(key); });
  });
}

heddle_status heddle_engine_submit(heddle_engine* engine, const heddle_engine_request* request,
                                   int64_t* id) {
  return guard([&] {
    heddle_engine& to = required("engine", engine);
    const heddle_engine_request& given = required("request", request);
    required("id", id) = -1;
    *id = to.thread.submit(heddle::capi::request_of(given), sink_of(to, given));
  });
}

heddle_status heddle_engine_submit_each(heddle_engine* engine, const heddle_engine_request* request,
                                        const heddle_engine_variant* variants, size_t num_variants,
                                        int64_t* ids) {
  return guard([&] {
    heddle_engine& to = required("engine", engine);
    const heddle_engine_request& given = required("request", request);
    std::vector<heddle::RequestVariant> each = heddle::capi::variants_of(variants, num_variants);
    if (num_variants == 0) return;
    std::fill_n(&required("ids", ids), num_variants, int64_t{-1});
    const std::vector<heddle::RequestId> submitted =
        to.thread.submit_each(heddle::capi::request_of(given), std::move(each), sink_of(to, given));
    std::ranges::copy(submitted, ids);
  });
}

heddle_status heddle_engine_cancel(heddle_engine* engine, int64_t id, bool* was_unfinished) {
  return guard([&] {
    const bool was = required("engine", engine).thread.cancel(id);
    if (was_unfinished != nullptr) *was_unfinished = was;
  });
}

heddle_status heddle_engine_poll(heddle_engine* engine, int64_t timeout_ms,
                                 heddle_engine_event** event) {
  return guard([&] {
    required("event", event) = nullptr;
    heddle::EventQueue& queue = *required("engine", engine).polled;
    using Clock = heddle::EventQueue::Clock;
    constexpr int64_t kDay = 24 * 60 * 60 * int64_t{1000};
    auto taken = std::make_unique<heddle::capi::TakenEvent>();  // first: no event may be lost
    std::optional<heddle::Event> next;
    do {
      const int64_t wait = timeout_ms < 0 ? kDay : std::min(timeout_ms, kDay);
      next = queue.next(Clock::now() + std::chrono::milliseconds(wait));
      timeout_ms -= timeout_ms < 0 ? 0 : wait;
    } while (!next && timeout_ms != 0);
    if (!next) return;
    taken->set(std::move(*next));
    *event = taken.release();
  });
}

void heddle_engine_event_destroy(heddle_engine_event* event) {
  delete static_cast<heddle::capi::TakenEvent*>(event);
}
