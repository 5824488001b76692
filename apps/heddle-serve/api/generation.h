#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "heddle/engine/request.h"

#include "answers/answer_grammar.h"
#include "answers/answer_parser.h"
#include "answers/answer_style.h"
#include "fetch/adapter_lease.h"

namespace heddle::serve {

/// Where a request says that its adapters come from.
struct SourceChoice {
  std::string source{};  // "local", "hub" or "s3"; empty: not given
  std::string token{};   // of the request, for that source; empty: none

  [[nodiscard]] bool is_remote() const { return source == "hub" || source == "s3"; }
};

/// Which adapters a request names, before it is known whether there are such.
struct ModelChoice {
  std::string model{};       // as the request has it, echoed in the answer; empty: not given
  std::string adapter_id{};  // goes before `model`
  AdapterList adapters{};    // goes before both
  AdapterMerge merge{};      // of that list
  SourceChoice from{};
  /// Those that were fetched, by the names above; held until the answer has ended.
  std::map<std::string, fetch::AdapterLease> fetched{};
};

/// The names that it has of adapters or the base model.
[[nodiscard]] inline std::vector<std::string> names_in(const ModelChoice& choice) {
  if (choice.adapters.empty()) {
    return {choice.adapter_id.empty() ? choice.model : choice.adapter_id};
  }
  std::vector<std::string> names;
  for (const AdapterWeight& each : choice.adapters) names.push_back(each.name);
  return names;
}

/// An entry of each_adapter, which is a prompt of its own.
struct EachAdapter {
  ModelChoice choice{};
  // Of its template, once the adapter is known:
  answers::AnswerStyle style{};
  answers::ParserOptions parser{};
};

class KeyUse;

/// A generation request of any of the APIs.
struct Generation {
  ModelChoice choice{};
  /// Of each_adapter one for each prompt, in place of `choice`, `style` and `parser`; else none.
  std::vector<EachAdapter> each{};
  /// One for each prompt, without its adapter. Sample j of prompt i draws with its seed + j.
  std::vector<Request> prompts{};
  int64_t n = 1;        // answers to each prompt in the response
  int64_t best_of = 1;  // answers to each prompt that are made; the n most likely are returned
  bool stream = false;
  bool include_usage = false;    // a last event of the stream has it
  bool logprobs = false;         // of the answer's tokens
  int64_t top_logprobs = 0;      // most likely tokens at each place, in addition
  int64_t prompt_logprobs = -1;  // most likely tokens at each place of the prompt; -1: none
  bool return_token_ids = false;
  bool echo = false;                  // the prompt comes before the answer
  std::string echoed{};               // of a conversation, or a prompt that was cut: what is echoed
  std::string request_id{};           // of the client's choice
  std::optional<int64_t> priority{};  // of all rows; not given: the one that its key has
  std::string chat_template{};        // in place of the model's
  bool returns_token_names = false;   // "token_id:42" in place of a token's text in logprobs
  /// Of a longer prompt the last tokens are kept that leave room for so many of the answer; 0: it
  /// is not cut.
  int64_t room = 0;
  std::string format_field{};          // the one that Request::format comes from; empty: none
  bool has_prediction = false;         // usage says what became of it
  std::vector<std::string> ignored{};  // fields that are accepted and have no effect

  /// What it takes of the limits of its key; null: there are none. Shared: forms keep copies.
  std::shared_ptr<KeyUse> use{};

  // Of conversations:
  answers::ToolRequest tools{};  // those that the answer may call
  answers::AnswerStyle style{};  // of the template, once the adapter is known
  /// What is found in the text of an answer. Before the template is known: what shall be, if the
  /// template has it.
  answers::ParserOptions parser{};
  bool hides_reasoning = false;  // thoughts that are found are left out
  bool holds_reasoning = false;  // streams have them as one piece, when they end
  bool gives_effort = false;     // reasoning_effort, which not all templates read
  /// A bound of thoughts of a model that has none is named as ignored; else it is refused.
  bool may_ignore_bound = false;
  [[nodiscard]] const answers::AnswerStyle& style_of(size_t prompt) const {
    return each.empty() ? style : each[prompt].style;
  }
  [[nodiscard]] const answers::ParserOptions& parser_of(size_t prompt) const {
    return each.empty() ? parser : each[prompt].parser;
  }
  /// Whether the text of an answer has parts.
  [[nodiscard]] bool parses(size_t prompt = 0) const {
    return parser_of(prompt).finds_calls || parser_of(prompt).finds_reasoning;
  }
};

}  // namespace heddle::serve
