#include "heddle/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <thread>
#include <unordered_map>

#include "heddle/core/error.h"
#include "heddle/ops/lora.h"

#include "engine/model_runner.h"
#include "engine/scheduler.h"
#include "model/model_names.h"
#include "model/model_text.h"

namespace heddle {
namespace {

/// The options with their defaults filled in from the model and the machine.
EngineOptions complete(EngineOptions options, const model::LlamaConfig& config) {
  HEDDLE_CHECK(options.max_batch >= 1, "max_batch is ", options.max_batch, ", expected at least 1");
  HEDDLE_CHECK(options.page_size >= 1, "page_size is ", options.page_size, ", expected at least 1");
  HEDDLE_CHECK(options.prefill_chunk >= 1, "prefill_chunk is ", options.prefill_chunk,
               ", expected at least 1");
  HEDDLE_CHECK(options.num_threads >= 0, "num_threads is ", options.num_threads,
               ", expected at least 0");
  HEDDLE_CHECK(options.max_context >= 0 && options.max_context <= config.context_length,
               "max_context is ", options.max_context, ", ", options.model_path, " was made for ",
               config.context_length);
  if (options.num_threads == 0) {
    options.num_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  if (options.max_context == 0) options.max_context = config.context_length;
  return options;
}

ModelRunner::Limits limits_of(const EngineOptions& options) {
  return {options.max_batch, options.num_threads, options.page_size, options.prefill_chunk,
          options.max_context};
}

}  // namespace

struct Engine::State {
  explicit State(const EngineOptions& given)
      : file(given.model_path),
        config(model::read_llama_config(file)),
        names(model::read_model_names(file)),
        options(complete(given, config)),
        tokenizer(model::read_vocabulary(file)),
        end_tokens(model::read_end_tokens(file)),
        chat_template(model::read_chat_template(file)),
        runner(Device{}, file, config, limits_of(options)) {
    HEDDLE_CHECK(tokenizer.vocab_size() == config.vocab_size, file.path(),
                 ": tokenizer.ggml.tokens has ", tokenizer.vocab_size(),
                 " entries, token_embd.weight has ", config.vocab_size, " rows");
    fill_info();
  }

  void fill_info();
  std::vector<int32_t> tokenize(const Request& request) const;
  Sequence make_sequence(const Request& request) const;
  void admit_waiting();
  void run_step(std::vector<Event>& events);
  bool take_token(Sequence& row, int32_t token, float logprob, std::vector<Event>& events);
  void retire(const Sequence* row);
  void cancel(Sequence& row);
  void count_step(double seconds, int64_t num_prompt_tokens, int64_t num_drawn);
  void release(Sequence& row);

  files::GgufFile file;
  model::LlamaConfig config;
  model::ModelNames names;
  EngineOptions options;
  tokenizer::Tokenizer tokenizer;
  std::vector<int32_t> end_tokens;
  std::optional<chat_template::ChatTemplate> chat_template;
  ModelRunner runner;
  ModelInfo info;
  EngineStats stats;
  std::unordered_map<std::string, int32_t> slot_of;  // adapters by name
  RequestId next_id = 0;
  std::deque<Sequence> waiting;
  std::vector<std::unique_ptr<Sequence>> running;
  std::vector<Event> ended;  // requests that ended outside of a step; told with the next one
  int64_t reserved_pages = 0;
};

void Engine::State::fill_info() {
  info = {.path = options.model_path,
          .name = config.name,
          .architecture = "llama",
          .num_layers = config.num_layers,
          .hidden_size = config.hidden_size,
          .intermediate_size = config.intermediate_size,
          .num_q_heads = config.num_q_heads,
          .num_kv_heads = config.num_kv_heads,
          .head_dim = config.head_dim,
          .vocab_size = config.vocab_size,
          .context_length = config.context_length};
  for (const files::GgufTensor& tensor : file.tensors())
    info.num_parameters += tensor.num_weights();
  info.weight_bytes = static_cast<int64_t>(runner.model().weights().num_bytes);
}

std::vector<int32_t> Engine::State::tokenize(const Request& request) const {
  const int num_given = int{request.text.has_value()} + int{request.token_ids.has_value()} +
                        int{!request.messages.empty()};
  HEDDLE_CHECK(num_given == 1, "a request has ", num_given,
               " of messages, text and token_ids, expected one");
  if (request.token_ids) {
    for (const int32_t id : *request.token_ids) {
      HEDDLE_CHECK(id >= 0 && id < tokenizer.vocab_size(), "token id ", id, ", the vocabulary has ",
                   tokenizer.vocab_size());
    }
    return *request.token_ids;
  }
  if (request.text) {
    std::vector<int32_t> ids = tokenizer.encode(*request.text, tokenizer::ControlTokens::kParse);
    if (tokenizer.add_bos() && tokenizer.bos() != tokenizer::kNoToken) {
      ids.insert(ids.begin(), tokenizer.bos());
    }
    return ids;
  }
  HEDDLE_CHECK(chat_template, file.path(), ": the model has no chat template; use raw text");
  std::vector<model::ChatTurn> turns;
  for (const Message& message : request.messages) turns.push_back({message.role, message.content});
  return tokenizer.encode(model::render_chat(*chat_template, turns, tokenizer, options.max_context),
                          tokenizer::ControlTokens::kParse);
}

Sequence Engine::State::make_sequence(const Request& request) const {
  Sequence row;
  row.sampling = request.sampling;
  row.ignore_end = request.ignore_end;
  if (!request.adapter.empty()) {
    const auto slot = slot_of.find(request.adapter);
    HEDDLE_CHECK(slot != slot_of.end(), "unknown adapter \"", request.adapter, "\"");
    row.slot = slot->second;
  }
  row.tokens = tokenize(request);
  row.prompt_tokens = static_cast<int64_t>(row.tokens.size());
  row.completion.prompt_tokens = row.prompt_tokens;
  HEDDLE_CHECK(row.prompt_tokens > 0, "the prompt has no tokens");
  HEDDLE_CHECK(row.prompt_tokens < options.max_context, "the prompt has ", row.prompt_tokens,
               " tokens, the context holds ", options.max_context, " with the answer");
  HEDDLE_CHECK(request.max_tokens >= 1, "max_tokens is ", request.max_tokens,
               ", expected at least 1");
  row.max_tokens =
      row.prompt_tokens + std::min(request.max_tokens, options.max_context - row.prompt_tokens);
  row.text = TextStream(request.stop);
  return row;
}

void Engine::State::admit_waiting() {
  while (!waiting.empty()) {
    const Admit verdict =
        admit(waiting.front().max_tokens, options.page_size, static_cast<int>(running.size()),
              options.max_batch, runner.num_pages() - reserved_pages);
    if (verdict != Admit::kYes) return;
    running.push_back(std::make_unique<Sequence>(std::move(waiting.front())));
    waiting.pop_front();
    reserved_pages += pages_for(running.back()->max_tokens, options.page_size);
  }
}

/// Adds a drawn token to the row, and the news to the events; returns whether the row has come to
/// its end.
bool Engine::State::take_token(Sequence& row, int32_t token, float logprob,
                               std::vector<Event>& events) {
  Completion& completion = row.completion;
  Event event{.request = row.id};
  const bool met_end = !row.ignore_end && std::ranges::find(end_tokens, token) != end_tokens.end();
  if (!met_end) {
    row.tokens.push_back(token);
    completion.token_ids.push_back(token);
    completion.logprobs.push_back(logprob);
    event.text = row.text.push(tokenizer.token_bytes(token));
  }
  const bool stopped = met_end || row.text.stopped();
  const bool ended = stopped || std::ssize(row.tokens) == row.max_tokens;
  if (ended) event.text += row.text.finish();
  completion.text += event.text;
  if (ended) {
    completion.finish_reason = stopped ? FinishReason::kStop : FinishReason::kLength;
    event.completion = std::move(completion);
  }
  if (ended || !event.text.empty()) events.push_back(std::move(event));
  return ended;
}

void Engine::State::release(Sequence& row) {
  for (const PageId page : row.pages) runner.pages().release(page);
  row.pages.clear();
}

/// Runs every row's share of one step, draws tokens, retires the rows that end.
void Engine::State::run_step(std::vector<Event>& events) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<RowState> states;
  std::vector<Sequence*> rows, drawing;
  for (const auto& row : running) {
    states.push_back({static_cast<int64_t>(row->tokens.size()), row->num_cached});
    rows.push_back(row.get());
  }
  const std::vector<int64_t> num_tokens = plan_step(states, options.prefill_chunk);
  int64_t num_prompt_tokens = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t prompt_left = std::max<int64_t>(rows[i]->prompt_tokens - rows[i]->num_cached, 0);
    num_prompt_tokens += std::min(prompt_left, num_tokens[i]);
    if (rows[i]->num_cached + num_tokens[i] == states[i].num_tokens) drawing.push_back(rows[i]);
  }
  runner.run(rows, num_tokens);
  if (!drawing.empty()) {
    std::vector<int32_t> tokens(drawing.size());
    std::vector<float> logprobs(drawing.size());
    runner.sample(drawing, tokens, logprobs);
    for (size_t i = 0; i < drawing.size(); ++i) {
      if (take_token(*drawing[i], tokens[i], logprobs[i], events)) retire(drawing[i]);
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  count_step(seconds.count(), num_prompt_tokens, std::ssize(drawing));
}

/// Gives the row's pages back and forgets it.
void Engine::State::retire(const Sequence* row) {
  const auto place = std::ranges::find(running, row, &std::unique_ptr<Sequence>::get);
  release(**place);
  reserved_pages -= pages_for((*place)->max_tokens, options.page_size);
  running.erase(place);
}

/// Ends the row's answer where it is; the next step tells it.
void Engine::State::cancel(Sequence& row) {
  Event event{.request = row.id, .text = row.text.finish()};
  row.completion.text += event.text;
  row.completion.finish_reason = FinishReason::kCancelled;
  event.completion = std::move(row.completion);
  ended.push_back(std::move(event));
}

void Engine::State::count_step(double seconds, int64_t num_prompt_tokens, int64_t num_drawn) {
  stats.lora_seconds = runner.lora_seconds();
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

Engine::Engine(const EngineOptions& options) : state_(std::make_unique<State>(options)) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

AdapterInfo Engine::add_adapter(const std::string& name, const std::string& folder) {
  HEDDLE_CHECK(!name.empty(), folder, ": an adapter needs a name");
  HEDDLE_CHECK(!has_adapter(name), "adapter name \"", name, "\" is given twice");
  const model::PeftAdapter adapter(folder);
  adapter.check_fits(state_->config.dims());
  const std::string& base_model = adapter.config().base_model;
  AdapterInfo info{.name = name,
                   .folder = folder,
                   .base_model = base_model,
                   .names_this_model = state_->names.may_be(base_model)};
  // The name first, so that nothing can fail once the adapter is in its slot.
  const auto entry = state_->slot_of.emplace(name, kNoAdapter).first;
  try {
    entry->second = state_->runner.add_adapter(adapter);
  } catch (...) {
    state_->slot_of.erase(entry);
    throw;
  }
  return info;
}

bool Engine::has_adapter(const std::string& name) const { return state_->slot_of.contains(name); }

const ModelInfo& Engine::model() const { return state_->info; }
const EngineOptions& Engine::options() const { return state_->options; }
const EngineStats& Engine::stats() const { return state_->stats; }

RequestId Engine::submit(const Request& request) {
  const RequestId id = state_->next_id++;
  try {
    Sequence row = state_->make_sequence(request);
    row.id = id;
    state_->waiting.push_back(std::move(row));
  } catch (const Error& error) {
    Completion completion;
    completion.finish_reason = FinishReason::kError;
    completion.error = error.what();
    state_->ended.push_back({.request = id, .text = "", .completion = std::move(completion)});
  }
  return id;
}

void Engine::check(const Request& request) const {
  static_cast<void>(state_->make_sequence(request));
}

bool Engine::cancel(RequestId request) {
  State& s = *state_;
  if (const auto row = std::ranges::find(s.waiting, request, &Sequence::id);
      row != s.waiting.end()) {
    s.cancel(*row);
    s.waiting.erase(row);
    return true;
  }
  const auto has_id = [request](const auto& row) { return row->id == request; };
  const auto row = std::ranges::find_if(s.running, has_id);
  if (row == s.running.end()) return false;
  s.cancel(**row);
  s.retire(row->get());
  return true;
}

int64_t Engine::num_unfinished() const {
  return static_cast<int64_t>(state_->waiting.size() + state_->running.size() +
                              state_->ended.size());
}

std::vector<int32_t> Engine::tokenize(const Request& request) const {
  return state_->tokenize(request);
}

std::vector<Event> Engine::step() {
  State& s = *state_;
  std::vector<Event> events = std::exchange(s.ended, {});
  s.admit_waiting();
  if (!s.running.empty()) s.run_step(events);
  return events;
}

std::vector<float> Engine::prompt_logits(const Request& request) {
  State& s = *state_;
  HEDDLE_CHECK(num_unfinished() == 0, "prompt_logits: ", num_unfinished(), " requests are at work");
  Sequence row = s.make_sequence(request);
  Sequence* const rows[] = {&row};
  while (row.num_cached < row.prompt_tokens) {
    const RowState state{row.prompt_tokens, row.num_cached};
    s.runner.run(rows, plan_step(std::span(&state, 1), s.options.prefill_chunk));
  }
  s.release(row);
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
