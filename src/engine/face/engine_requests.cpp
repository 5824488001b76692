// The functions of heddle::Engine that take requests in: what is checked, found and tokenized
// before a row waits.
#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "heddle/core/error.h"

#include "engine/adapters/row_adapters.h"
#include "engine/face/engine_state.h"
#include "engine/options/request_check.h"
#include "engine/rows/row_failure.h"
#include "engine/rows/scheduler.h"
#include "engine/rows/shared_prefix.h"
#include "engine/rules/row_adjustment.h"
#include "files/printable.h"

namespace heddle {

/// The vocabulary of a model or an adapter may be smaller than that of the tokenizer.
void Engine::State::check_tokens(std::span<const int32_t> tokens,
                                 const KnownAdapter* adapter) const {
  const int64_t num_tokens = adapter == nullptr ? config.vocab_size : adapter->num_tokens;
  for (const int32_t id : tokens) {
    if (id >= 0 && id < num_tokens) continue;
    const tokenizer::Tokenizer& tokenizer = *text_of(adapter).tokenizer;
    const bool has_text = id >= 0 && id < tokenizer.vocab_size();
    const std::string text =
        has_text ? " (" + files::quote(tokenizer.token_bytes(id)) + " of the tokenizer)" : "";
    throw_error(ErrorCode::kInvalidArgument, "token id ", id, text, ", the vocabulary has ",
                num_tokens);
  }
}

/// What is known without the prompt's tokens: the fields of the answer, and the adapters.
void Engine::State::begin_row(Sequence& sequence, const Request& request) {
  if (!ended_by.empty()) throw_error(ErrorCode::kCuda, ended_by);
  check_answer_fields(request);
  set_adapters(sequence.adapters, request, adapters);
}

/// All else of a sequence that was begun.
void Engine::State::end_row(Sequence& sequence, const Request& request,
                            const RequestTokens& tokens) {
  const KnownAdapter* const adapter = sequence.adapters.first();
  Completion& completion = sequence.answer.completion;
  check_tokens(tokens.prompt, adapter);
  const int64_t prompt_tokens = completion.prompt_tokens = std::ssize(tokens.prompt);
  HEDDLE_CHECK(prompt_tokens > 0, "the prompt has no tokens");
  HEDDLE_CHECK(prompt_tokens < options.max_context, "the prompt has ", prompt_tokens,
               " tokens, the context holds ", options.max_context, " with the answer");
  const bool draws = request.max_tokens > 0;
  sequence.request = {
      .sampling = request.sampling,
      .ignore_end = request.ignore_end,
      .min_tokens = request.min_tokens,
      .stop_tokens = tokens.stop_tokens,
      .top_logprobs = request.top_logprobs,
      .scores_prompt = request.prompt_logprobs || !draws,
      .draws = draws,
      .skips_special = request.skip_special_tokens,
      .tells_tokens = request.tell_tokens,
      .prompt_tokens = prompt_tokens,
      .max_tokens = prompt_tokens + std::min(std::max<int64_t>(request.max_tokens, 1),
                                             options.max_context - prompt_tokens),
      .submitted_at = sequence.request.submitted_at};
  check_length(sequence.request);
  sequence.tokens = tokens.prompt;
  sequence.cache.prefill_length = prompt_tokens;
  set_active_positions(sequence.adapters, tokens.prompt);
  if (request.tell_tokens) {
    completion.prompt_token_ids = sequence.tokens;
    completion.token_texts = texts_of(text_of(adapter).tokenizer);
  }
  sequence.answer.text = TextStream(request.stop, request.include_stop);
  const int64_t num_logits = adapter == nullptr ? config.vocab_size : adapter->num_logits;
  HEDDLE_CHECK(request.top_logprobs <= num_logits, "top_logprobs is ", request.top_logprobs,
               ", the vocabulary has ", num_logits);
  sequence.adjustment = RowAdjustment::make(request, text_of(adapter), tokens, num_logits);
}

void Engine::State::fill_row(Sequence& sequence, const Request& request) {
  begin_row(sequence, request);
  const RowText& text = text_of(sequence.adapters.first());
  end_row(sequence, request, request_tokens(request, text, files->path(), options.max_context));
}

void Engine::State::check_length(const RowRequest& request) const {
  const int64_t needed = pages_for_row(request.max_tokens, options.page_size);
  const int64_t num_pages = runner.pages().num_pages();
  HEDDLE_CHECK(needed <= num_pages, "prompt and answer may take ", request.max_tokens,
               " tokens, which need ", needed, " pages of the KV cache (",
               needed * runner.page_bytes(), " bytes), but it has ", num_pages,
               " (kv_memory: ", options.kv_memory, " bytes)");
}

namespace {

/// Whether every request has the same tokens with both.
bool makes_same_tokens(const RowText& a, const RowText& b) {
  return a.tokenizer == b.tokenizer && a.chat_templates == b.chat_templates &&
         a.special_tokens == b.special_tokens;
}

}  // namespace

struct RequestDraft::State {
  struct Row {
    Sequences sequence{};
    std::shared_ptr<const RequestTokens> tokens{};  // rows of one tokenizer and template have one
    std::exception_ptr failure{};                   // of an earlier part, which ends the row
  };

  /// Makes the request that of row i. Throws Error where it and its variant have adapters.
  void vary(size_t i) {
    request.sampling.seed = static_cast<int64_t>(static_cast<uint64_t>(seed) +
                                                 static_cast<uint64_t>(each[i].seed_offset));
    if (each[i].adapters.empty()) {
      request.adapters = adapters;
      return;
    }
    HEDDLE_CHECK(
        request.adapter.empty() && adapters.empty(),
        "a request that is run for several adapters also has adapter or adapters; leave them out");
    request.adapters = each[i].adapters;
  }

  Request request{};
  std::vector<RequestVariant> each{};
  int64_t seed = 0;        // of the request as it was given
  AdapterList adapters{};  // likewise
  bool may_share = false;  // the rows may begin with pages that one of them has computed
  std::vector<Row> rows{};
  std::vector<RequestId> ids{};  // room for those
  const RowText* text_of_base = nullptr;
  const std::string* model_path = nullptr;
  int64_t max_context = 0;
};

RequestDraft::RequestDraft(std::unique_ptr<State> state) : state_(std::move(state)) {}
RequestDraft::RequestDraft(RequestDraft&&) noexcept = default;
RequestDraft& RequestDraft::operator=(RequestDraft&&) noexcept = default;
RequestDraft::~RequestDraft() = default;

bool RequestDraft::has_texts() const {
  constexpr size_t kShortList = 256;  // that takes no longer to sort than to hand over
  const Request& request = state_->request;
  return !request.token_ids || !request.bad_words.empty() ||
         request.allowed_token_ids.size() + request.stop_token_ids.size() > kShortList;
}

void RequestDraft::encode() noexcept {
  State& s = *state_;
  const RowText* last_text = nullptr;
  std::shared_ptr<const RequestTokens> tokens;
  std::exception_ptr failure;
  for (State::Row& row : s.rows) {
    if (row.failure) continue;
    const KnownAdapter* const adapter = row.sequence.front().adapters.first();
    const RowText& text = adapter == nullptr ? *s.text_of_base : adapter->text;
    if (last_text == nullptr || !makes_same_tokens(text, *last_text)) {
      last_text = &text;
      tokens = nullptr;
      failure = nullptr;
      try {
        tokens = std::make_shared<const RequestTokens>(
            request_tokens(s.request, text, *s.model_path, s.max_context));
      } catch (...) {
        failure = std::current_exception();
      }
    }
    row.tokens = tokens;
    row.failure = failure;
  }
}

RequestDraft Engine::draft(Request request) {
  RequestDraft draft = draft_each(std::move(request), std::vector<RequestVariant>(1));
  draft.state_->may_share = false;
  return draft;
}

RequestDraft Engine::draft_each(Request request, std::vector<RequestVariant> each) {
  auto draft = std::make_unique<RequestDraft::State>();
  RequestDraft::State& d = *draft;
  d.request = std::move(request);
  d.each = std::move(each);
  d.seed = d.request.sampling.seed;
  d.adapters = d.request.adapters;
  d.may_share = true;
  d.rows.resize(d.each.size());
  d.ids.reserve(d.each.size());
  d.text_of_base = &state_->text_of_base;
  d.model_path = &state_->files->path();
  d.max_context = state_->options.max_context;
  for (size_t i = 0; i < d.rows.size(); ++i) {
    d.rows[i].sequence = RowQueue::make_row(-1);
    try {
      d.vary(i);
      state_->begin_row(d.rows[i].sequence.front(), d.request);
    } catch (...) {
      d.rows[i].failure = std::current_exception();
    }
  }
  return RequestDraft(std::move(draft));
}

std::vector<RequestId> Engine::submit(RequestDraft draft) noexcept {
  State& s = *state_;
  RequestDraft::State& d = *draft.state_;
  std::vector<Sequence*> waiting;
  for (size_t i = 0; i < d.rows.size(); ++i) {
    RequestDraft::State::Row& row = d.rows[i];
    Sequence& sequence = row.sequence.front();
    sequence.id = s.next_id++;
    d.ids.push_back(sequence.id);
    try {
      if (row.failure) std::rethrow_exception(row.failure);
      d.vary(i);
      s.end_row(sequence, d.request, *row.tokens);
      s.runner.reserve_for(sequence.adapters);
      if (d.may_share) {
        waiting.reserve(d.rows.size());
        // One that may be prefilled anew, or computes all of its prompt, shares nothing.
        const bool may_share = s.config.recompute_above() == 0 && !sequence.request.scores_prompt;
        if (may_share) share_prefix(sequence, waiting, s.options.page_size);
        waiting.push_back(&sequence);
      } else {
        s.adapters.prefetch(sequence);
      }
      s.queue.wait(std::move(row.sequence));
    } catch (const std::exception& failure) {
      s.queue.refuse(std::move(row.sequence), failure_of(failure));
    }
  }
  return std::move(d.ids);
}

RequestId Engine::submit(Request request) {
  RequestDraft draft = this->draft(std::move(request));
  draft.encode();
  return submit(std::move(draft)).front();
}

std::vector<RequestId> Engine::submit_each(Request request, std::vector<RequestVariant> each) {
  RequestDraft draft = draft_each(std::move(request), std::move(each));
  draft.encode();
  return submit(std::move(draft));
}

void Engine::check(const Request& request) const {
  Sequences one = RowQueue::make_row(-1);
  state_->fill_row(one.front(), request);
}

std::vector<int32_t> Engine::tokenize(const Request& request) const {
  return tokenizer(request)->tokenize(request);
}

std::shared_ptr<const PromptTokenizer> Engine::tokenizer(const Request& request) const {
  const AdapterHold adapter = state_->adapters.find(adapter_of_text(request));
  return prompt_tokenizer(state_->text_of(adapter.get()), state_->files->path(),
                          state_->options.max_context);
}

std::string Engine::render(const Request& request, const std::string& chat_template) const {
  const auto templates = chat_template::ChatTemplates::from({{"default", chat_template}},
                                                            "chat_template of the request");
  return rendered(request, templates, state_->text_of_base.special_tokens,
                  state_->options.max_context);
}

}  // namespace heddle
