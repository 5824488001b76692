// What becomes of the tokens that steps have drawn: answers, and events that report them.
#include <algorithm>
#include <cmath>
#include <new>
#include <type_traits>
#include <utility>

#include "heddle/core/error.h"

#include "engine/face/engine_state.h"
#include "engine/rows/row_failure.h"

namespace heddle {
namespace {

/// Puts the tokens of the answer since the last event into this one. Where memory runs out the
/// completion alone has them.
void tell_tokens(Sequence& sequence, Event& event) noexcept {
  const Completion& completion = sequence.answer.completion;
  const size_t end = completion.token_ids.size();
  const size_t begin = std::exchange(sequence.answer.num_told, end);
  const auto add = [begin, end](auto& to, const auto& all, size_t each) {
    const auto at = [&](size_t i) {
      return all.begin() + static_cast<ptrdiff_t>(std::min(i * each, all.size()));
    };
    to.insert(to.end(), at(begin), at(end));
  };
  const auto k = static_cast<size_t>(sequence.request.top_logprobs);
  try {
    add(event.tokens.ids, completion.token_ids, 1);
    add(event.tokens.logprobs, completion.logprobs, 1);
    add(event.tokens.top_ids, completion.top_token_ids, k);
    add(event.tokens.top_logprobs, completion.top_logprobs, k);
  } catch (const std::bad_alloc&) {
    event.tokens = {};
  }
  event.token_texts = completion.token_texts;
}

}  // namespace

/// Throws where a number of the row's is NaN or infinite. The log-probability of a token that is
/// drawn is so only where all logits were: NaN counts as -infinity, and -infinity is drawn only
/// where there is nothing else.
void Engine::State::check_finite(const Sequence& sequence, std::span<const float> numbers) {
  if (std::ranges::all_of(numbers, [](float x) { return std::isfinite(x); })) return;
  const bool is_base = sequence.adapters.holds.empty();
  throw NotFinite(std::string("the logits of the row are NaN or infinite: ") +
                  (is_base ? "the model has" : "the model or the adapter has") +
                  " weights that are damaged, or too large for the type of its activations");
}

/// Ends a row that wants values with them.
void Engine::State::take_values(Sequence& sequence) {
  try {
    check_finite(sequence, sequence.values->collected);
    sequence.values->finish(sequence.answer.completion, sequence.request.prompt_tokens);
    queue.end(sequence, FinishReason::kStop);
  } catch (const std::exception& failure) {
    queue.fail(sequence, failure_of(failure));
  }
}

/// Takes what the row has drawn, as far as its drafts were right. Keys and values of its other
/// drafts no longer count: later steps write over them.
void Engine::State::take_tokens_of(const RowStep& row, const StepTokens& tokens,
                                   std::vector<Event>& events) {
  Sequence& sequence = *row.sequence;
  const int64_t num_taken = row.num_taken(tokens.of(row));
  int64_t i = 0;
  for (; i < num_taken && row.is_alive(); ++i) {
    const auto at = static_cast<size_t>(row.logits_begin + i);
    if (row.num_drafts > 0) queue.accept(sequence, row.first + 1 + i);
    queue.charge_token(sequence);
    try {
      take_token(sequence, {tokens.ids[at], tokens.logprobs[at], i}, events);
    } catch (const std::exception& failure) {
      queue.fail(sequence, failure_of(failure));
    }
  }
  Completion& completion = sequence.answer.completion;
  const size_t num_tops =
      completion.token_ids.size() * static_cast<size_t>(sequence.request.top_logprobs);
  if (completion.top_token_ids.size() > num_tops) {  // the answer has ended before its last draft
    completion.top_token_ids.resize(num_tops);
    completion.top_logprobs.resize(num_tops);
  }
  stats.generated_tokens += i;
  if (drafter.is_on()) count_drafts(row, std::min(i, num_taken - 1));
  if (model_drafter != nullptr && row.is_alive() && sequence.drafts != nullptr) {
    model_drafter->take(row, num_taken);
  }
}

/// Adds a drawn token to the answer, and an event where there is text or the tokens are reported;
/// ends the request where that was its last.
void Engine::State::take_token(Sequence& sequence, const DrawnToken& drawn,
                               std::vector<Event>& events) {
  const auto [token, logprob, num_drafts] = drawn;
  check_finite(sequence, {&logprob, 1});
  if (sequence.mask != nullptr) sequence.mask->check(token, num_drafts);
  const RowRequest& request = sequence.request;
  RowAnswer& answer = sequence.answer;
  Completion& completion = answer.completion;
  if (!request.draws) return queue.end(sequence, FinishReason::kLength);
  std::string text;
  const RowText& own = text_of(sequence.adapters.text());
  const std::vector<int32_t>& end_tokens = own.end_tokens;
  const bool met_stop = std::ranges::binary_search(request.stop_tokens, token);
  const bool is_end = std::ranges::find(end_tokens, token) != end_tokens.end();
  const bool met_end = (!request.ignore_end && is_end) || met_stop;
  if (met_stop) completion.stop_token = token;
  // The embedding may have rows that are no token of the tokenizer's: they have no text.
  const bool is_special = token < own.tokenizer->vocab_size() && own.tokenizer->is_control(token);
  if (met_end) {  // it is no part of the answer
    if (sequence.drafts != nullptr) sequence.drafts->end_token = token;
    if (is_special) text = answer.text.push_hidden(own.tokenizer->token_bytes(token));
  } else {
    sequence.tokens.push_back(token);
    completion.token_ids.push_back(token);
    completion.logprobs.push_back(logprob);
    if (sequence.adjustment != nullptr) sequence.adjustment->count(token);
    const bool searches = std::ssize(completion.token_ids) > request.min_tokens;
    if (request.skips_special && is_special) {
      text = answer.text.push_hidden(own.tokenizer->token_bytes(token), searches);
    } else {
      std::string bytes;
      if (token < own.tokenizer->vocab_size()) {
        own.tokenizer->decode_next(token, answer.decoding, bytes);
      }
      text = answer.text.push(bytes, searches);
    }
  }
  const bool is_longest = std::ssize(sequence.tokens) == request.max_tokens;
  const bool ended = met_end || answer.text.stopped() || is_longest;
  if (ended) text += finish_text(sequence);
  completion.text += text;
  if (ended) {
    answer.last_text = std::move(text);
    completion.stop = answer.text.met();
    const bool stopped = met_end || answer.text.stopped();  // perhaps by the last of the text
    queue.end(sequence, stopped ? FinishReason::kStop : FinishReason::kLength);
  } else if (!text.empty() || request.tells_tokens) {
    const bool has_event = !events.empty() && events.back().request == sequence.id;
    if (!has_event) {
      events.push_back({.request = sequence.id,
                        .prompt_tokens = completion.prompt_tokens,
                        .cached_tokens = completion.cached_tokens});
    }
    events.back().text += text;
    if (request.tells_tokens) tell_tokens(sequence, events.back());
  }
}

/// The text that became certain with the end.
std::string Engine::State::finish_text(Sequence& sequence) const {
  TextStream& stream = sequence.answer.text;
  std::string bytes, text;
  text_of(sequence.adapters.text()).tokenizer->decode_end(sequence.answer.decoding, bytes);
  if (!stream.stopped()) text = stream.push(bytes);
  return text + stream.finish();
}

/// Reports the requests that have ended. `events` has room for one event of each.
void Engine::State::publish(std::vector<Event>& events) {
  if (!queue.ended().empty()) adapters.free_unused();
  for (Sequence& sequence : queue.ended()) {
    drafter.remember(sequence);
    const Completion& completion = sequence.answer.completion;
    Event event{.request = sequence.id,
                .text = std::move(sequence.answer.last_text),
                .prompt_tokens = completion.prompt_tokens,
                .cached_tokens = completion.cached_tokens};
    if (sequence.request.tells_tokens) tell_tokens(sequence, event);
    event.completion = std::move(sequence.answer.completion);
    events.push_back(std::move(event));
    for (StepInFlight& step : steps) step.schedule.forget(sequence);
  }
  queue.ended().clear();
}

}  // namespace heddle
