#include "heddle/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <new>
#include <sstream>
#include <utility>

#include "heddle/core/error.h"

#include "core/device_name.h"
#include "engine/face/engine_state.h"
#include "engine/rows/row_failure.h"
#include "engine/rows/scheduler.h"

namespace heddle {
namespace {

/// How long a step without anything to compute waits for a format to be compiled.
constexpr std::chrono::milliseconds kFormatLook{5};

/// Whether the device failed, and not the request: it may compute nothing more.
bool is_of_device(const std::exception& failure) {
  const auto* const error = dynamic_cast<const Error*>(&failure);
  return error != nullptr && error->code() == ErrorCode::kCuda;
}

std::string sentence_of(const StepCosts& costs) {
  std::ostringstream tokens, times;
  times.precision(3);
  const char* comma = "";
  for (const StepCost& cost : costs.table()) {
    tokens << comma << cost.num_tokens;
    times << comma << 1e3 * cost.seconds;
    comma = ", ";
  }
  return "steps of " + tokens.str() + " tokens take " + times.str() + " ms: drafts go by that";
}

std::string sentence_of(const std::exception& failure, const std::string& device,
                        const StepSchedule& step) {
  std::ostringstream text;
  text << "the engine has ended: " << device << " failed in a step of " << step.rows.size()
       << " rows and " << step.num_prompt_tokens << " tokens of prompts: " << failure.what();
  return text.str();
}

}  // namespace

RowQueue::Rules Engine::State::queue_rules() const {
  return {.max_batch = options.max_batch,
          .page_size = options.page_size,
          .reserves_longest = options.admit == "longest",
          .has_two_paths = is_as_on_gpu(),
          .has_tenants = fairness != Fairness::kOff};
}

void Engine::State::fill_info() {
  info = {.path = options.model_path,
          .name = config.name,
          .architecture = config.family,
          .num_layers = config.num_layers,
          .hidden_size = config.hidden_size,
          .intermediate_size = config.intermediate_size,
          .num_q_heads = config.num_q_heads,
          .num_kv_heads = config.num_kv_heads,
          .head_dim = config.head_dim,
          .vocab_size = config.vocab_size,
          .context_length = config.context_length,
          .files = files->file_paths(),
          .settings_path = files->settings_path(),
          .unread_settings = files->unread_settings(),
          .warnings = files->warnings(),
          .notes = files->notes(),
          .generation = generation};
  if (keys_depend_on_length(config)) {
    info.notes.emplace_back(
        "the model's rotation depends on the length of a sequence, so requests share no prefixes "
        "and start when there is room for their longest answer");
  }
  info.num_parameters = files->num_parameters();
  info.weight_bytes = static_cast<int64_t>(runner.model().weights().num_bytes);
  info.read_bytes = runner.model().weights().read_bytes;
  info.load_seconds = runner.model().weights().load_seconds;
  info.device_name = device_name(device_of(options));
  info.activations = heddle::name(runner.model().weights().activations);
  const model::DecoderWeights& weights = runner.model().weights();
  if (weights.product_activations == LinearActivations::kInt8) {
    info.notes.push_back("activations is int8: products with " + std::to_string(weights.num_int8) +
                         " of " + std::to_string(weights.num_matrices) +
                         " matrices, those in block formats, round what they read to 8 bits");
  }
  if (!drafter.costs().table().empty()) info.notes.push_back(sentence_of(drafter.costs()));
  if (model_drafter != nullptr) model_drafter->describe(info);
  describe_weights(info, options, runner.model().weights().quantization);
}

/// Starts what fits. Where nothing runs, the load of an adapter is all there is to wait for.
void Engine::State::admit() {
  queue.admit();
  while (queue.running().empty() && !queue.waiting().is_empty() && adapters.wait()) queue.admit();
  if (queue.running().empty() && waits_for_format()) {
    formats.wait_for(kFormatLook);
    queue.admit();
  }
  reserve_adjustments();
  reserve_masks();
  reserve_values();
}

bool Engine::State::waits_for_format() const {
  bool any = false;
  queue.waiting().for_each([&any](const Sequence& sequence) {
    any |= !sequence.is_paused && sequence.mask != nullptr && !sequence.mask->is_ready();
  });
  return any;
}

/// Ends those that were just admitted.
void Engine::State::fail_new(const std::exception& failure, bool (*concerns)(const Sequence&)) {
  for (auto next = queue.running().begin(); next != queue.running().end();) {
    Sequence& sequence = *next++;
    if (concerns(sequence) && !sequence.cache.has_run) queue.fail(sequence, failure_of(failure));
  }
}

/// As below, for the masks.
void Engine::State::reserve_masks() {
  const auto has_mask = [](const Sequence& sequence) { return sequence.mask != nullptr; };
  if (std::ranges::none_of(queue.running(), has_mask)) return;
  try {
    runner.reserve_masks(std::ssize(queue.running()));
  } catch (const std::exception& failure) {
    fail_new(failure, has_mask);
  }
}

/// As below, for what rows collect that want values.
void Engine::State::reserve_values() {
  for (auto next = queue.running().begin(); next != queue.running().end();) {
    Sequence& sequence = *next++;
    if (sequence.values == nullptr) continue;
    try {
      runner.give_place(*sequence.values);
    } catch (const std::exception& failure) {
      queue.fail(sequence, failure_of(failure));
    }
  }
}

/// Room for the penalties and biases of the running requests; where there is none, those end that
/// were just admitted.
void Engine::State::reserve_adjustments() {
  int64_t num_entries = 0;
  for (const Sequence& sequence : queue.running()) {
    if (sequence.adjustment == nullptr) continue;
    const int64_t num_draws = 1 + (may_draft(sequence) ? kMaxRowDrafts : 0);
    num_entries += num_draws * sequence.adjustment->max_entries();
  }
  if (num_entries == 0) return;
  try {
    runner.reserve_adjustments(num_entries);
  } catch (const std::exception& failure) {
    fail_new(failure, [](const Sequence& sequence) { return sequence.adjustment != nullptr; });
  }
}

/// Room for one event of each request; without it those that run end.
bool Engine::State::reserve_events(std::vector<Event>& events) {
  try {
    events.reserve(queue.running().size() + queue.ended().size());
    return true;
  } catch (const std::bad_alloc& failure) {
    if (queue.running().empty()) throw;
    while (!queue.running().empty()) queue.fail(queue.running().front(), failure_of(failure));
    return false;
  }
}

StepInFlight& Engine::State::schedule() {
  StepInFlight& step = first_step->handle ? *second_step : *first_step;
  step.begin = std::chrono::steady_clock::now();
  do {  // where all that runs waits for pages that are being read, so does the engine
    queue.prepare_step();
    draft_tokens();
    schedule_step(
        step.schedule, queue.running(),
        {.prefill_chunk = options.prefill_chunk, .recompute_above = config.recompute_above()});
  } while (step.schedule.rows.empty() && !first_step->handle && queue.wait_for_page());
  return step;
}

/// After the runner's launch nothing is allocated, so that no step is lost. A step that needs the
/// tokens of the one in flight draws when that is collected.
void Engine::State::launch(StepInFlight& step) {
  if (step.schedule.rows.empty()) return;
  const bool is_first = &step == first_step;
  try {
    if (hooks.before_compute) hooks.before_compute(runner.exec());
    step.handle = runner.launch(step.schedule);
  } catch (const std::exception& failure) {
    return fail_step(failure, step.schedule);
  }
  step.is_drawn = false;
  if (is_first || !step.schedule.adjusts_logits()) draw(step);
}

/// Where that was not done.
void Engine::State::draw(StepInFlight& step) {
  if (!step.handle || std::exchange(step.is_drawn, true)) return;
  try {
    runner.draw(*step.handle);
  } catch (const std::exception& failure) {
    step.handle = std::nullopt;
    fail_step(failure, step.schedule);
  }
}

/// Ends the requests of the step. Where the device has failed, the engine ends: it answers all
/// requests with the reason, later ones too.
void Engine::State::fail_step(const std::exception& failure, const StepSchedule& step) {
  if (!is_of_device(failure)) {
    for (const RowStep& row : step.rows) {
      if (row.is_alive()) queue.fail(*row.sequence, failure_of(failure));
    }
    return;
  }
  try {
    ended_by = sentence_of(failure, options.device, step);
  } catch (const std::bad_alloc&) {
    ended_by = "device failed";  // short enough to need no memory
  }
  for (StepInFlight& each : steps) each.handle = std::nullopt;
  queue.fail_all({RequestError::kEngineEnded, ended_by});
}

/// Collects the step that was launched first; the other one can draw then.
void Engine::State::collect(std::vector<Event>& events) {
  if (!first_step->handle) return;
  take_tokens(events);
  draw(*first_step);
}

/// Takes the tokens of the step that was launched first, of requests that still run.
void Engine::State::take_tokens(std::vector<Event>& events) {
  StepInFlight& step = *first_step;
  std::swap(first_step, second_step);
  const StepHandle handle = *std::exchange(step.handle, std::nullopt);
  StepTokens tokens{};
  try {
    tokens = runner.collect(handle);
  } catch (const std::exception& failure) {
    return fail_step(failure, step.schedule);
  }
  const int64_t num_before = stats.generated_tokens;
  for (const RowStep& row : step.schedule.rows) {
    if (!row.is_alive()) continue;
    if (row.num_drafts == 0) queue.add_computed(*row.sequence, row.first + row.count);
    if (row.gives_values) {
      take_values(*row.sequence);
    } else {
      take_tokens_of(row, tokens, events);
    }
  }
  if (model_drafter != nullptr) model_drafter->computed(step.schedule);
  const auto begin = std::max(last_collected, step.begin);
  last_collected = std::chrono::steady_clock::now();
  const std::chrono::duration<double> seconds = last_collected - begin;
  count_step(seconds.count(), step.schedule, stats.generated_tokens - num_before);
}

void Engine::State::count_step(double seconds, const StepSchedule& step, int64_t num_taken) {
  stats.lora_seconds = runner.lora_seconds();
  stats.wait_seconds = runner.wait_seconds();
  stats.device_seconds = runner.clock().busy_seconds();
  stats.device_gap_seconds = runner.clock().gap_seconds();
  stats.graphs = runner.graphs().num_recorded();
  stats.graph_seconds = runner.graphs().seconds();
  if (step.num_prompt_tokens > 0) {
    stats.prefill_seconds += seconds;
    stats.prefill_tokens += step.num_prompt_tokens;
    ++stats.prefill_steps;
  } else {
    stats.decode_seconds += seconds;
    stats.decode_tokens += num_taken;
    ++stats.decode_steps;
  }
}

void Engine::State::count_adapters() {
  const AdapterTiers::Counts& counts = adapters.tiers().counts();
  stats.adapter_uses = counts.num_uses;
  stats.adapter_loads = counts.num_loads;
  stats.adapter_reads = counts.num_reads;
  stats.adapter_seconds = counts.seconds;
  stats.adapter_evictions = counts.num_evictions;
}

Engine::Engine(const EngineOptions& options) : state_(std::make_unique<State>(options)) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

const ModelInfo& Engine::model() const { return state_->info; }
const EngineOptions& Engine::options() const { return state_->options; }
const EngineStats& Engine::stats() const {
  state_->count_adapters();  // which are also loaded and evicted between steps
  const RowQueue::Counts& counts = state_->queue.counts();
  state_->stats.prefix_tokens = counts.prefix_tokens;
  state_->stats.cached_tokens = counts.cached_tokens;
  const int64_t page_size = state_->options.page_size;
  state_->stats.disk_tokens = state_->prefixes.num_read_from_disk() * page_size;
  state_->stats.host_tokens = state_->prefixes.num_read() * page_size - state_->stats.disk_tokens;
  state_->stats.parkings = counts.parkings;
  return state_->stats;
}

const std::string& Engine::ended_by() const { return state_->ended_by; }

EngineLoad Engine::load() const {
  const RowQueue& queue = state_->queue;
  const PagePool& pages = std::as_const(state_->runner).pages();
  const AdapterTiers& tiers = state_->adapters.tiers();
  return {.num_waiting = queue.waiting().size(),
          .num_running = std::ssize(queue.running()),
          .num_ended = std::ssize(queue.ended()),
          .num_pages = pages.num_pages(),
          .num_free_pages = pages.num_free(),
          .num_cached_pages = pages.num_unused(),
          .num_host_pages = state_->stored.num_host_pages(),
          .num_disk_pages = state_->stored.num_disk_pages(),
          .num_parked = queue.num_parked(),
          .num_adapters = tiers.num_on_device(),
          .adapter_bytes = tiers.device_bytes(),
          .num_host_adapters = std::ssize(tiers.on_host()),
          .host_adapter_bytes = tiers.host_bytes()};
}

std::vector<RowProgress> Engine::row_progress(size_t max_rows) const {
  const RowQueue& queue = state_->queue;
  std::vector<RowProgress> rows;
  const auto add = [&](const Sequence& sequence, RowPhase phase) {
    if (rows.size() == max_rows) return;
    const Completion& answer = sequence.answer.completion;
    const int64_t prompt = sequence.request.prompt_tokens;
    rows.push_back({.id = sequence.id,
                    .adapter = sequence.request.adapter,
                    .phase = phase,
                    .is_parked = phase == RowPhase::kWaiting && sequence.cache.was_parked,
                    .is_paused = sequence.is_paused,
                    .prompt_tokens = prompt,
                    .cached_tokens = answer.cached_tokens,
                    .computed_tokens = std::min(sequence.cache.num_cached, prompt),
                    .answer_tokens = std::ssize(answer.token_ids)});
  };
  for (const Sequence& sequence : queue.running()) {
    add(sequence, sequence.decodes() ? RowPhase::kDecode : RowPhase::kPrefill);
  }
  queue.waiting().for_each([&](const Sequence& sequence) { add(sequence, RowPhase::kWaiting); });
  return rows;
}

bool Engine::cancel(RequestId request) {
  State& s = *state_;
  Sequence* const sequence = s.queue.find(request);
  if (sequence == nullptr) return false;
  RowAnswer& answer = sequence->answer;
  try {
    answer.last_text = s.finish_text(*sequence);
    answer.completion.text += answer.last_text;
    s.queue.end(*sequence, FinishReason::kCancelled);
  } catch (const std::bad_alloc& failure) {
    answer.last_text.clear();
    s.queue.fail(*sequence, failure_of(failure));
  }
  s.adapters.free_unused();
  return true;
}

bool Engine::set_paused(RequestId request, bool is_paused) {
  Sequence* const sequence = state_->queue.find(request);
  if (sequence == nullptr) return false;
  state_->queue.set_paused(*sequence, is_paused);
  return true;
}

void Engine::reset_prefix_cache() noexcept { state_->prefixes.clear(); }

int64_t Engine::num_unfinished() const {
  const EngineLoad now = load();
  return now.num_waiting + now.num_running + now.num_ended;
}

/// On a GPU step n + 1 is launched before the tokens of step n are read; where a request changes
/// its logits by these, all but what draws. A request that ends in step n is still computed in step
/// n + 1; that result is discarded. Where drafts may follow the tokens of step n, step n + 1 waits
/// for them.
std::vector<Event> Engine::step() {
  State& s = *state_;
  s.admit();
  std::vector<Event> events;
  if (!s.reserve_events(events)) return events;
  if (!s.queue.running().empty()) {
    // Where none of its requests runs any more, the idle time before the next launch is no gap.
    if (std::ranges::none_of(s.first_step->schedule.rows, &RowStep::is_alive)) s.collect(events);
    if (!s.first_step->handle) s.launch(s.schedule());
    if (s.runner.overlaps() && !s.awaits_drawn()) s.launch(s.schedule());
    s.collect(events);
  }
  s.publish(events);
  return events;
}

std::vector<float> Engine::prompt_logits(const Request& request) {
  State& s = *state_;
  HEDDLE_CHECK(num_unfinished() == 0, "prompt_logits: ", num_unfinished(),
               " requests are still running");
  std::vector<Event> events;  // of a step in flight, whose requests have all ended
  s.collect(events);
  Sequences one = RowQueue::make_row(-1);
  Sequence& sequence = one.front();
  s.fill_row(sequence, request);
  // What is drawn from the logits is discarded.
  const int64_t prompt_tokens = sequence.request.prompt_tokens;
  sequence.request = {.prompt_tokens = prompt_tokens};
  sequence.adjustment = nullptr;
  sequence.mask = nullptr;
  sequence.values = nullptr;
  sequence.drafts = nullptr;
  s.runner.reserve_for(sequence.adapters);
  s.adapters.wait_and_take(sequence);
  sequence.cache.pages = *s.runner.pages().reserve(pages_for(prompt_tokens, s.options.page_size));
  StepSchedule step;
  while (sequence.cache.num_cached < prompt_tokens) {
    schedule_step(step, one, {.prefill_chunk = s.options.prefill_chunk});
    const StepHandle handle = s.runner.launch(step);
    s.runner.draw(handle);
    static_cast<void>(s.runner.collect(handle));
  }
  return s.runner.copy_logits();
}

const char* name(RowPhase phase) {
  switch (phase) {
    case RowPhase::kWaiting: return "waiting";
    case RowPhase::kPrefill: return "prefill";
    case RowPhase::kDecode: return "decode";
  }
  return "?";
}

const char* name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kError: return "error";
    case FinishReason::kCancelled: return "cancelled";
  }
  return "?";
}

}  // namespace heddle
