// The functions of heddle::Engine that take requests: what is checked, found and tokenized before a
// row waits.
#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "heddle/core/error.h"

#include "core/digest.h"
#include "engine/adapters/row_adapters.h"
#include "engine/face/engine_state.h"
#include "engine/options/request_check.h"
#include "engine/rows/row_failure.h"
#include "engine/rows/scheduler.h"
#include "engine/rules/row_adjustment.h"
#include "engine/rules/row_mask.h"
#include "files/printable.h"

namespace heddle {

/// The vocabulary of a model or an adapter may be smaller than that of the tokenizer.
void Engine::State::check_tokens(std::span<const int32_t> tokens,
                                 const KnownAdapter* adapter) const {
  const int64_t num_tokens = num_tokens_of(adapter);
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

namespace {

/// None has the zeros.
Digest digest_of_salt(const std::string& salt, std::span<const std::byte> secret) {
  return salt.empty() ? Digest{} : Hasher(secret).add(salt).digest();
}

/// "sql", "sql+cron"; empty: none.
std::string named_adapters(const Request& request) {
  std::string names = request.adapter;
  for (const AdapterWeight& each : request.adapters)
    names += (names.empty() ? "" : "+") + each.name;
  return names;
}

/// Whether every request has the same tokens with both.
bool makes_same_tokens(const RowText& a, const RowText& b) {
  return a.tokenizer == b.tokenizer && a.chat_templates == b.chat_templates &&
         a.special_tokens == b.special_tokens;
}

}  // namespace

/// The tokens of a request whose rows may have adapters with texts of their own: the same ones for
/// neighbours of one tokenizer and template.
class Engine::State::TokensOfRows {
 public:
  const RequestTokens& of(const Request& request, const RowText& text, const State& state) {
    if (last_text_ == nullptr || !makes_same_tokens(text, *last_text_)) {
      last_text_ = &text;
      failure_ = nullptr;
      try {
        tokens_ = request_tokens(request, text, state.files->path(), state.options.max_context);
      } catch (...) {
        failure_ = std::current_exception();
      }
    }
    if (failure_) std::rethrow_exception(failure_);
    return tokens_;
  }

 private:
  const RowText* last_text_ = nullptr;
  RequestTokens tokens_{};
  std::exception_ptr failure_{};
};

/// Of the adapter, or else of the model; null: there is none.
std::shared_ptr<const model::ScoreHead> Engine::State::score_head(
    const KnownAdapter* adapter) const {
  const bool has_own = adapter != nullptr && adapter->score != nullptr;
  return has_own ? adapter->score : files->score_head();
}

/// What the request wants in place of an answer.
std::unique_ptr<RowValues> Engine::State::values_of(const Request& request,
                                                    const KnownAdapter* adapter) const {
  const int64_t num_logits = adapter == nullptr ? config.vocab_size : adapter->num_logits;
  return RowValues::make(request, {.embedding = embedding,
                                   .hidden_size = config.hidden_size,
                                   .num_logits = config.has_head ? num_logits : 0,
                                   .score = score_head(adapter)});
}

/// Checks the request, finds its adapters and tokenizes it. In any thread, concurrently with steps.
void Engine::State::fill_row(Sequence& sequence, const Request& request, TokensOfRows& of_rows) {
  check_answer_fields(request);
  set_adapters(sequence.adapters, request, adapters);
  const KnownAdapter* const adapter = sequence.adapters.text();
  const RequestTokens& tokens = of_rows.of(request, text_of(adapter), *this);
  Completion& completion = sequence.answer.completion;
  check_tokens(tokens.prompt, adapter);
  const int64_t prompt_tokens = completion.prompt_tokens = std::ssize(tokens.prompt);
  HEDDLE_CHECK(prompt_tokens > 0, "the prompt has no tokens");
  sequence.values = values_of(request, adapter);
  const bool wants_values = sequence.values != nullptr;
  HEDDLE_CHECK(prompt_tokens + (wants_values ? 0 : 1) <= options.max_context, "the prompt has ",
               prompt_tokens, " tokens, the context holds ", options.max_context,
               wants_values ? "" : " with the answer");
  if (!wants_values && !config.has_head) {
    throw_error(ErrorCode::kUnsupported, files->path(), ": is a ",
                files->score_head() != nullptr ? "classifier" : "model without a head",
                ", which writes no answers; it embeds",
                files->score_head() != nullptr ? " and classifies" : "");
  }
  const bool draws = request.max_tokens > 0 && !wants_values;
  const int64_t max_answer = wants_values ? 1
                                          : std::min(std::max<int64_t>(request.max_tokens, 1),
                                                     options.max_context - prompt_tokens);
  sequence.request = {.sampling = request.sampling,
                      .ignore_end = request.ignore_end,
                      .min_tokens = request.min_tokens,
                      .stop_tokens = tokens.stop_tokens,
                      .top_logprobs = request.top_logprobs,
                      .scores_prompt = !wants_values && (request.prompt_logprobs || !draws),
                      .draws = draws,
                      .skips_special = request.skip_special_tokens,
                      .tells_tokens = request.tell_tokens,
                      .prompt_tokens = prompt_tokens,
                      .max_tokens = prompt_tokens + max_answer,
                      .salt = digest_of_salt(request.cache_salt, runner.adapters().secret()),
                      .adapter = named_adapters(request),
                      .tenant = tenant_of(request, fairness),
                      .weight = request.tenant_weight,
                      .priority = request.priority,
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
  if (wants_values) return;
  sequence.drafts = drafter.drafts_of(request.speculation, tokens.prediction);
  sequence.adjustment = RowAdjustment::make(request, text_of(adapter), tokens, num_logits);
  sequence.mask = RowMask::make(request, text_of(adapter), num_logits, formats);
}

/// Of a request that is one row, for the thread of the engine.
void Engine::State::fill_row(Sequence& sequence, const Request& request) {
  if (!ended_by.empty()) throw_error(ErrorCode::kCuda, ended_by);
  adapters.free_unused();  // of requests that were only checked
  TokensOfRows of_rows;
  fill_row(sequence, request, of_rows);
  adapters.reserve();
}

void Engine::State::check_length(const RowRequest& request) const {
  const int64_t needed = pages_for_row(request.max_tokens, options.page_size);
  const int64_t num_pages = runner.pages().num_pages();
  HEDDLE_CHECK(needed <= num_pages, "prompt and answer may take ", request.max_tokens,
               " tokens, which need ", needed, " pages of the KV cache (",
               needed * runner.page_bytes(), " bytes), but it has ", num_pages,
               " (kv_memory: ", options.kv_memory, " bytes)");
}

struct EncodedRequest::State {
  struct Row {
    Sequences sequence{};
    std::exception_ptr failure{};  // which ends the row
  };

  std::vector<Row> rows{};
  std::vector<RequestId> ids{};  // room for those
};

EncodedRequest::EncodedRequest(std::unique_ptr<State> state) : state_(std::move(state)) {}
EncodedRequest::EncodedRequest(EncodedRequest&&) noexcept = default;
EncodedRequest& EncodedRequest::operator=(EncodedRequest&&) noexcept = default;
EncodedRequest::~EncodedRequest() = default;

EncodedRequest Engine::encode(Request request) const {
  return encode_each(std::move(request), std::vector<RequestVariant>(1));
}

EncodedRequest Engine::encode_each(Request request, const std::vector<RequestVariant>& each) const {
  auto encoded = std::make_unique<EncodedRequest::State>();
  encoded->rows.resize(each.size());
  encoded->ids.reserve(each.size());
  for (EncodedRequest::State::Row& row : encoded->rows) row.sequence = RowQueue::make_row(-1);
  const auto seed = static_cast<uint64_t>(request.sampling.seed);
  const AdapterList list = request.adapters;
  const AdapterMerge merge = request.merge;
  const bool has_lists = std::ranges::any_of(
      each, [](const RequestVariant& variant) { return variant.adapters.size() > 1; });
  State::TokensOfRows of_rows;
  for (size_t i = 0; i < each.size(); ++i) {
    try {
      request.sampling.seed =
          static_cast<int64_t>(seed + static_cast<uint64_t>(each[i].seed_offset));
      HEDDLE_CHECK(each[i].adapters.empty() || (request.adapter.empty() && list.empty()),
                   "a request that is run for several adapters also has adapter or adapters; leave "
                   "them out");
      request.adapters = each[i].adapters.empty() ? list : each[i].adapters;
      request.merge = request.adapters.size() > 1 || !has_lists ? merge : AdapterMerge();
      state_->fill_row(encoded->rows[i].sequence.front(), request, of_rows);
    } catch (...) {
      encoded->rows[i].failure = std::current_exception();
    }
  }
  return EncodedRequest(std::move(encoded));
}

std::vector<RequestId> Engine::submit(EncodedRequest encoded) noexcept {
  State& s = *state_;
  EncodedRequest::State& e = *encoded.state_;
  s.adapters.free_unused();  // of requests that were only checked
  for (EncodedRequest::State::Row& row : e.rows) {
    Sequence& sequence = row.sequence.front();
    sequence.id = s.next_id++;
    e.ids.push_back(sequence.id);
    try {
      if (!s.ended_by.empty()) throw_error(ErrorCode::kCuda, s.ended_by);
      if (row.failure) std::rethrow_exception(row.failure);
      s.adapters.reserve();
      s.runner.reserve_for(sequence.adapters);
      sequence.tenant = s.queue.tenant(sequence.request);
      if (e.rows.size() == 1) s.adapters.prefetch(sequence);
      s.queue.wait(std::move(row.sequence));
    } catch (const std::exception& failure) {
      s.queue.refuse(std::move(row.sequence), failure_of(failure));
    }
  }
  return std::move(e.ids);
}

RequestId Engine::submit(Request request) { return submit(encode(std::move(request))).front(); }

std::vector<RequestId> Engine::submit_each(Request request, std::vector<RequestVariant> each) {
  return submit(encode_each(std::move(request), each));
}

void Engine::check(const Request& request) const {
  Sequences one = RowQueue::make_row(-1);
  state_->fill_row(one.front(), request);
  const RowMask* const mask = one.front().mask.get();
  if (mask == nullptr || mask->job() == nullptr) return;
  state_->formats.wait(*mask->job());
  (void)mask->job()->result();
}

std::vector<int32_t> Engine::tokenize(const Request& request) const {
  return tokenizer(request)->tokenize(request);
}

std::shared_ptr<const PromptTokenizer> Engine::tokenizer(const Request& request) const {
  const AdapterHold adapter = state_->adapters.find(adapter_of_text(request));
  return prompt_tokenizer(state_->text_of(adapter.get()), state_->files->path(),
                          state_->options.max_context);
}

std::vector<std::string> Engine::labels(const Request& request) const {
  const AdapterHold adapter = state_->adapters.find(adapter_of_text(request));
  const std::shared_ptr<const model::ScoreHead> head = state_->score_head(adapter.get());
  return head == nullptr ? std::vector<std::string>() : head->labels();
}

std::string Engine::render(const Request& request, answers::AnswerStyle& style) const {
  const AdapterHold adapter = state_->adapters.find(adapter_of_text(request));
  const RowText& text = state_->text_of(adapter.get());
  check_has_template(text, state_->files->path());
  check_chat_fields(request);
  style = text.styles->at(request.tools_json.empty() ? 0 : 1);
  return rendered(request, *text.chat_templates, text.special_tokens, state_->options.max_context);
}

std::string Engine::render(const Request& request, const std::string& chat_template,
                           answers::AnswerStyle& style) const {
  const auto templates = chat_template::ChatTemplates::from({{"default", chat_template}},
                                                            "chat_template of the request");
  style = answer_style_of(templates.pick(false));
  return rendered(request, templates, state_->text_of_base.special_tokens,
                  state_->options.max_context);
}

}  // namespace heddle
