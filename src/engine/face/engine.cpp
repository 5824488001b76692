#include "heddle/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <new>
#include <utility>

#include "heddle/core/error.h"

#include "core/device_name.h"
#include "engine/face/engine_state.h"
#include "engine/rows/row_failure.h"
#include "engine/rows/scheduler.h"

namespace heddle {
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
  info.num_parameters = files->num_parameters();
  info.weight_bytes = static_cast<int64_t>(runner.model().weights().num_bytes);
  info.read_bytes = runner.model().weights().read_bytes;
  info.load_seconds = runner.model().weights().load_seconds;
  info.device_name = device_name(device_of(options));
  info.activations = heddle::name(runner.model().weights().activations);
  describe_weights(info, options, runner.model().weights().quantization);
}

/// Room for what the running rows ask of their logits; where there is none, those end that were
/// just admitted.
void Engine::State::reserve_adjustments() {
  int64_t num_entries = 0;
  for (const Sequence& row : queue.running()) {
    if (row.adjustment != nullptr) num_entries += row.adjustment->most_entries();
  }
  if (num_entries == 0) return;
  try {
    runner.reserve_adjustments(num_entries);
  } catch (const std::exception& failure) {
    for (auto row = queue.running().begin(); row != queue.running().end();) {
      Sequence& each = *row++;
      if (each.adjustment != nullptr && each.num_cached == 0) queue.fail(each, failure_of(failure));
    }
  }
}

/// Lists the running rows, their share of the next step and those that draw a token in it; returns
/// how many tokens of prompts it takes in.
int64_t Engine::State::make_plan() {
  plan.rows.clear();
  plan.drawing.clear();
  plan.states.clear();
  for (Sequence& row : queue.running()) {
    if (row.is_paused) continue;
    if (row.num_pending > 0 && row.num_tokens() >= row.max_tokens) continue;  // they are its last
    runner.prepare(row);
    plan.rows.push_back(&row);
    plan.states.push_back({row.num_tokens(), row.num_cached});
  }
  plan.num_tokens.resize(plan.rows.size());
  plan_step(plan.states, options.prefill_chunk, plan.num_tokens);
  runner.limit_scored(plan.rows, plan.num_tokens);
  int64_t num_prompt_tokens = 0;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const auto [num_tokens, num_cached] = plan.states[i];
    const int64_t prompt_left = std::max<int64_t>(plan.rows[i]->prompt_tokens - num_cached, 0);
    num_prompt_tokens += std::min(prompt_left, plan.num_tokens[i]);
    if (num_cached + plan.num_tokens[i] == num_tokens) plan.drawing.push_back(plan.rows[i]);
  }
  plan.tokens.resize(plan.drawing.size());
  plan.logprobs.resize(plan.drawing.size());
  return num_prompt_tokens;
}

/// Runs every row's share of one step, draws tokens and ends the rows that come to their end.
/// `events` has room for one event of each.
void Engine::State::run_step(std::vector<Event>& events) {
  const auto begin = std::chrono::steady_clock::now();
  if (runs_ahead()) return run_ahead(events);
  collect(launched[0], events);
  const int64_t num_prompt_tokens = make_plan();
  if (plan.rows.empty()) return;
  try {
    if (before_compute) before_compute(runner.exec());
    runner.run(plan.rows, plan.num_tokens);
    if (!plan.drawing.empty()) runner.sample(plan.drawing, plan.tokens, plan.logprobs);
  } catch (const std::exception& failure) {
    return fail_planned(failure, num_prompt_tokens);
  }
  for (size_t i = 0; i < plan.drawing.size(); ++i) {
    Sequence& row = *plan.drawing[i];
    try {
      take_token(row, plan.tokens[i], plan.logprobs[i], events);
    } catch (const std::exception& failure) {
      queue.fail(row, failure_of(failure));
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  count_step(seconds.count(), num_prompt_tokens, std::ssize(plan.drawing));
}

/// Whether the running rows' steps are asked for one ahead of the tokens that the host knows.
bool Engine::State::runs_ahead() {
  plan.rows.clear();
  for (Sequence& row : queue.running()) plan.rows.push_back(&row);
  return runner.can_run_ahead(plan.rows);
}

/// Asks the device for the next step and then for the one behind it, and takes the tokens of the
/// first meanwhile. A row that these end has a share of the second all the same, of which nobody
/// reads anything.
void Engine::State::run_ahead(std::vector<Event>& events) {
  auto& [first, second] = launched;
  const auto runs = [this](const auto& row) { return queue.find(row.first) == row.second; };
  if (std::ranges::none_of(first.rows, runs)) collect(first, events);  // nobody waits for it
  if (!first.is_under_way) launch(first);
  launch(second);
  collect(first, events);
  std::swap(first, second);
}

/// Asks for no memory of the host behind the runner's launch, so that no step is lost.
void Engine::State::launch(LaunchedStep& step) {
  step.num_prompt_tokens = make_plan();
  step.rows.clear();
  if (plan.rows.empty()) return;
  for (Sequence* const row : plan.drawing) step.rows.emplace_back(row->id, row);
  try {
    if (before_compute) before_compute(runner.exec());
    runner.launch(plan.rows, plan.num_tokens, plan.drawing);
    step.launched_at = std::chrono::steady_clock::now();
    step.is_under_way = true;
  } catch (const std::exception& failure) {
    fail_planned(failure, step.num_prompt_tokens);
  }
}

/// Takes the tokens that a step has drawn, of rows that still run.
void Engine::State::collect(LaunchedStep& step, std::vector<Event>& events) {
  if (!step.is_under_way) return;
  step.is_under_way = false;
  plan.tokens.resize(step.rows.size());
  plan.logprobs.resize(step.rows.size());
  std::exception_ptr failed;
  try {
    runner.collect(plan.tokens, plan.logprobs);
  } catch (const std::exception& failure) {
    if (fail_launched(failure, step)) return;
    failed = std::current_exception();
  }
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const auto [id, pointer] = step.rows[i];
    Sequence* const row = queue.find(id);
    if (row != pointer) continue;  // it has ended
    --row->num_pending;
    try {
      if (failed) std::rethrow_exception(failed);
      take_token(*row, plan.tokens[i], plan.logprobs[i], events);
    } catch (const std::exception& failure) {
      queue.fail(*row, failure_of(failure));
    }
  }
  const auto begin = std::max(last_collected, step.launched_at);
  last_collected = std::chrono::steady_clock::now();
  const std::chrono::duration<double> seconds = last_collected - begin;
  count_step(seconds.count(), step.num_prompt_tokens, std::ssize(step.rows));
}

/// Throws where the row's logits were no numbers. Of any others the token that is drawn has a
/// log-probability: NaN counts as -infinity, and -infinity is drawn only where there is nothing
/// else.
void Engine::State::check_finite(const Sequence& row, float logprob) {
  if (std::isfinite(logprob)) return;
  const bool is_base = row.adapters.empty();
  throw NotFinite(std::string("the logits of the row are NaN or infinite: ") +
                  (is_base ? "the model has" : "the model or the adapter has") +
                  " weights that are damaged, or too large for the type of its activations");
}

/// Adds a drawn token to the row, and the news to the events; ends the row where that was its last.
void Engine::State::take_token(Sequence& row, int32_t token, float logprob,
                               std::vector<Event>& events) {
  check_finite(row, logprob);
  if (!row.draws) return queue.end(row, FinishReason::kLength);
  std::string text;
  const RowText& own = text_of(row.adapter());
  const std::vector<int32_t>& end_tokens = own.end_tokens;
  const bool met_stop = std::ranges::binary_search(row.stop_tokens, token);
  const bool is_end = std::ranges::find(end_tokens, token) != end_tokens.end();
  const bool met_end = (!row.ignore_end && is_end) || met_stop;
  if (met_stop) row.completion.stop_token = token;
  // The embedding may have rows that are no token of the tokenizer's: they have no text.
  const bool is_special = token < own.tokenizer->vocab_size() && own.tokenizer->is_control(token);
  if (met_end) {  // it is no part of the answer, nor are those that might have been in its place
    const size_t kept = row.completion.token_ids.size() * static_cast<size_t>(row.top_logprobs);
    row.completion.top_token_ids.resize(kept);
    row.completion.top_logprobs.resize(kept);
    if (is_special) text = row.text.push_hidden(own.tokenizer->token_bytes(token));
  } else {
    row.tokens.push_back(token);
    row.completion.token_ids.push_back(token);
    row.completion.logprobs.push_back(logprob);
    if (row.adjustment != nullptr) row.adjustment->count(token);
    const bool searches = std::ssize(row.completion.token_ids) > row.min_tokens;
    if (row.skips_special && is_special) {
      text = row.text.push_hidden(own.tokenizer->token_bytes(token), searches);
    } else {
      std::string bytes;
      if (token < own.tokenizer->vocab_size()) {
        own.tokenizer->decode_next(token, row.decoding, bytes);
      }
      text = row.text.push(bytes, searches);
    }
  }
  const bool ended = met_end || row.text.stopped() || std::ssize(row.tokens) == row.max_tokens;
  if (ended) text += finish_text(row);
  row.completion.text += text;
  if (ended) {
    row.last_text = std::move(text);
    row.completion.stop = row.text.met();
    const bool stopped = met_end || row.text.stopped();  // perhaps by the last of the text
    queue.end(row, stopped ? FinishReason::kStop : FinishReason::kLength);
  } else if (!text.empty() || row.tells_tokens) {
    Event event{.request = row.id, .text = std::move(text)};
    if (row.tells_tokens) tell_tokens(row, event);
    events.push_back(std::move(event));
  }
}

/// The text that became certain with the row's end.
std::string Engine::State::finish_text(Sequence& row) const {
  std::string bytes, text;
  text_of(row.adapter()).tokenizer->decode_end(row.decoding, bytes);
  if (!row.text.stopped()) text = row.text.push(bytes);
  return text + row.text.finish();
}

/// `events` has room for one event of each.
void Engine::State::tell_ended(std::vector<Event>& events) {
  for (Sequence& row : queue.ended()) {
    Event event{.request = row.id, .text = std::move(row.last_text)};
    if (row.tells_tokens) tell_tokens(row, event);
    event.completion = std::move(row.completion);
    events.push_back(std::move(event));
  }
  queue.forget_ended();
}

void Engine::State::count_step(double seconds, int64_t num_prompt_tokens, int64_t num_drawn) {
  stats.lora_seconds = runner.lora_seconds();
  stats.wait_seconds = runner.wait_seconds();
  stats.device_seconds = runner.clock().busy_seconds();
  stats.device_gap_seconds = runner.clock().gap_seconds();
  stats.graphs = runner.num_graphs();
  stats.graph_seconds = runner.graph_seconds();
  stats.generated_tokens += num_drawn;
  if (num_prompt_tokens > 0) {
    stats.prefill_seconds += seconds;
    stats.prefill_tokens += num_prompt_tokens;
    ++stats.prefill_steps;
  } else {
    stats.decode_seconds += seconds;
    stats.decode_tokens += num_drawn;
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
  state_->count_adapters();  // which also come and go between steps
  return state_->stats;
}

const std::string& Engine::ended_by() const { return state_->ended_by; }

EngineLoad Engine::load() const {
  const RowQueue& queue = state_->queue;
  const PagePool& pages = std::as_const(state_->runner).pages();
  const AdapterTiers& tiers = state_->adapters.tiers();
  return {.num_waiting = std::ssize(queue.waiting()),
          .num_running = std::ssize(queue.running()),
          .num_ended = std::ssize(queue.ended()),
          .num_pages = pages.num_pages(),
          .num_free_pages = pages.num_free(),
          .num_adapters = tiers.num_on_device(),
          .adapter_bytes = tiers.device_bytes(),
          .num_host_adapters = std::ssize(tiers.on_host()),
          .host_adapter_bytes = tiers.host_bytes()};
}

bool Engine::cancel(RequestId request) {
  State& s = *state_;
  Sequence* const row = s.queue.find(request);
  if (row == nullptr) return false;
  try {
    row->last_text = s.finish_text(*row);
    row->completion.text += row->last_text;
    s.queue.end(*row, FinishReason::kCancelled);
  } catch (const std::bad_alloc& failure) {
    row->last_text.clear();
    s.queue.fail(*row, failure_of(failure));
  }
  s.adapters.free_unused();
  return true;
}

bool Engine::set_paused(RequestId request, bool is_paused) {
  Sequence* const row = state_->queue.find(request);
  if (row == nullptr) return false;
  row->is_paused = is_paused;
  return true;
}

int64_t Engine::num_unfinished() const {
  const EngineLoad now = load();
  return now.num_waiting + now.num_running + now.num_ended;
}

std::vector<Event> Engine::step() {
  State& s = *state_;
  s.queue.admit();
  // Where nothing runs, the load of an adapter is all there is to wait for.
  while (s.queue.running().empty() && !s.queue.waiting().empty() && s.adapters.wait()) {
    s.queue.admit();
  }
  std::vector<Event> events;
  try {
    events.reserve(s.queue.running().size() + s.queue.ended().size());
  } catch (const std::bad_alloc& failure) {
    if (s.queue.running().empty()) throw;
    s.fail_running(failure);
    return events;
  }
  s.reserve_adjustments();
  if (!s.queue.running().empty()) s.run_step(events);
  if (!s.queue.ended().empty()) s.adapters.free_unused();
  s.tell_ended(events);
  return events;
}

std::vector<float> Engine::prompt_logits(const Request& request) {
  State& s = *state_;
  HEDDLE_CHECK(num_unfinished() == 0, "prompt_logits: ", num_unfinished(),
               " requests are still running");
  Sequence row;
  s.fill_row(row, request);
  s.runner.reserve_for(row);
  s.adapters.wait_and_take(row);
  row.pages = *s.runner.pages().reserve(pages_for(row.prompt_tokens, s.options.page_size));
  Sequence* const rows[] = {&row};
  s.runner.prepare(row);
  while (row.num_cached < row.prompt_tokens) {
    const RowState state{row.prompt_tokens, row.num_cached};
    int64_t num_tokens = 0;
    plan_step(std::span(&state, 1), s.options.prefill_chunk, std::span(&num_tokens, 1));
    s.runner.run(rows, std::span(&num_tokens, 1));
  }
  return s.runner.copy_logits();
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
