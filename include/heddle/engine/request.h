#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/error.h"
#include "heddle/engine/json_value.h"
#include "heddle/engine/speculation.h"

namespace heddle {

/// One turn of a conversation, as the model's chat template sees it. Turns with calls of tools,
/// parts or other fields go into Request::messages_json.
struct Message {
  std::string role;
  std::string content;
};

/// How tokens are picked; see ops/sampling.h for the formulas and the order in which all of this
/// acts: biases, penalties, temperature, filters. Log-probabilities are those of before. A value
/// out of its range ends the request with its error.
struct SamplingOptions {
  float temperature = 0.0f;  // finite, at least 0; 0: greedy
  int32_t top_k = 0;         // at least 0; 0: all
  float top_p = 1.0f;        // above 0, up to 1; 1: all
  float min_p = 0.0f;        // 0 to 1; 0: all
  int64_t seed = 0;          // any
  /// Above 0, finite; 1: off. Of tokens in prompt or answer, as transformers has it: logits above 0
  /// are divided by it, others multiplied.
  float repetition_penalty = 1.0f;
  /// -2 to 2; 0: off. Subtracted from the logits of tokens in the answer, as in vLLM and OpenAI's
  /// API: presence once, frequency once per occurrence of the token.
  float presence_penalty = 0.0f, frequency_penalty = 0.0f;
};

/// Added to the logit of a token.
struct TokenBias {
  int32_t token = 0;
  float bias = 0.0f;  // -100 to 100
};

/// An adapter of a list and the factor of what it adds.
struct AdapterWeight {
  std::string name;
  float scale = 1.0f;  // finite; below 0 it is taken away
};

using AdapterList = std::vector<AdapterWeight>;

/// How the adapters of a list become one. But for kLinear they are merged as PEFT's
/// add_weighted_adapter has it: each tensor of A and of B by itself, over the n adapters that have
/// the layer, which must be of one rank there. With the adapter's own s = alpha / rank and its
/// scale w in the list, A_i counts sqrt(|w s|) times, with the sign of w s, and B_i sqrt(|w s|)
/// times. The merged layer adds B (A x). docs/adapter_merges.md has the formulas.
struct AdapterMerge {
  enum class Method : uint8_t {
    kLinear,         // nothing is merged: their deltas are added up, as Request::adapters says
    kTies,           // the largest values of each, of them those of the sign that most have
    kDareLinear,     // values drawn at random, divided by the density, and their sum
    kDareTies,       // such values, of them those of the sign that most have
    kMagnitudePrune  // the largest values of each, and their sum
  };
  /// What decides the sign of an element, of kTies and kDareTies.
  enum class MajoritySign : uint8_t {
    kTotal,     // the sum of the values
    kFrequency  // more values above 0 than below it; as many: above 0
  };
  Method method = Method::kLinear;
  /// The share of the values of each tensor that count: above 0, up to 1. Not given: 0, which only
  /// kLinear takes, and nothing else than that.
  double density = 0;
  MajoritySign majority_sign = MajoritySign::kTotal;
  int64_t seed = 0;  // any; which values kDareLinear and kDareTies draw

  friend bool operator==(const AdapterMerge&, const AdapterMerge&) = default;
};

/// "linear", "ties", "dare_linear", "dare_ties" or "magnitude_prune", as in PEFT.
[[nodiscard]] const char* name(AdapterMerge::Method method);
/// "total" or "frequency".
[[nodiscard]] const char* name(AdapterMerge::MajoritySign sign);
/// The method or sign of this name. Throws Error, which has the names that there are.
[[nodiscard]] AdapterMerge::Method merge_method(std::string_view name);
[[nodiscard]] AdapterMerge::MajoritySign majority_sign_method(std::string_view name);

/// What the text of an answer must be. An answer that ends with kStop has it whole; one that ends
/// with kLength is the beginning of one. docs/structured_output.md lists what schemas may hold.
struct AnswerFormat {
  enum class Kind : uint8_t {
    kText,          // anything
    kJson,          // any JSON object
    kJsonSchema,    // JSON that the schema `source` describes
    kRegex,         // what the pattern `source` matches as a whole
    kChoice,        // one of `choices`
    kGrammar,       // what rule "root" of `source`, a grammar in GBNF or EBNF, derives
    kLark,          // what rule "start" of `source`, a grammar in Lark, derives
    kStructuralTag  // a structural tag of xgrammar, JSON
  };
  Kind kind = Kind::kText;
  std::string source{};
  std::vector<std::string> choices{};

  [[nodiscard]] bool is_free() const { return kind == Kind::kText; }
};

/// A bound of an answer's thoughts.
struct ThinkingLimit {
  int64_t max_tokens = -1;  // at least 0: as many tokens, then those of `end`; -1: no bound
  /// Where the answer does not begin with this text, it does not think. Empty: it does from its
  /// first token on.
  std::string begin{};
  std::string end{};  // "</think>"
};

/// Numbers that a request asks for in place of an answer: they are made of its prompt, and nothing
/// is drawn. h [prompt_tokens, hidden_size] are the prompt's hidden states after the model's last
/// norm, with the request's adapters.
struct WantedValues {
  enum class Kind : uint8_t {
    kNone,
    /// [dimensions]: h pooled to one vector, its first `dimensions` numbers, and these divided by
    /// their Euclidean length where it is normalized.
    kEmbedding,
    /// [num_labels]: the score head of the adapter, or else of the model, times h of the last token
    /// plus the head's bias; with `activates` as probabilities.
    kClasses,
    /// [token_ids.size()]: the natural logarithm of the probability that each of `token_ids` comes
    /// next, as log-probabilities of answers are.
    kTokenScores
  };
  Kind kind = Kind::kNone;
  /// Of an embedding: "last", the last row of h; "mean", the mean of its rows; "cls", its first
  /// row. Empty: as the model's folder says (1_Pooling/config.json), else "last".
  std::string pooling{};
  /// Of an embedding; not given: as the model's folder says (modules.json), else true.
  std::optional<bool> normalize{};
  int64_t dimensions = 0;  // of an embedding: 1 to hidden_size; 0: all
  /// Of classes: softmax(logits); where the head has one label, or its model's problem_type is
  /// "multi_label_classification", each logit's sigmoid; with "regression" the logits stay.
  bool activates = true;
  std::vector<int32_t> token_ids{};  // 1 to kMaxScoredTokens of the vocabulary
};
inline constexpr size_t kMaxScoredTokens = 128;

/// One row of work. Exactly one of `messages` (or `messages_json`), `text` and `token_ids` is
/// given: messages go through the model's chat template, text and tokens are taken as they are.
///
/// What is JSON has the form of OpenAI's chat API and Hugging Face's apply_chat_template, and
/// reaches the template as there (docs/chat_template.md). An empty text is not given; one that is
/// no JSON, or of another type than named, ends the request with an error that names the field.
struct Request {
  std::vector<Message> messages;
  std::optional<std::string> text;
  std::optional<std::vector<int32_t>> token_ids;
  std::string adapter;       // empty: the base model
  int64_t max_tokens = 256;  // of the answer; the context's end is one too. 0 scores the prompt
  SamplingOptions sampling;
  /// The text ends before the first of these; none empty, UTF-8. They match special tokens by their
  /// text, too, whether or not the answer shows them.
  std::vector<std::string> stop;
  bool ignore_end = false;  // the end token does not end the answer: for measurements

  /// Instead of `messages`: [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}, ...].
  JsonValue messages_json{};
  // For conversations alone.
  JsonValue tools_json{};      // [{"type": "function", "function": {"name": "now", ...}}, ...]
  JsonValue documents_json{};  // [{"title": "Looms", "text": "A loom ..."}, ...]
  /// Further variables of the template: {"enable_thinking": false}.
  JsonValue template_kwargs_json{};
  bool add_generation_prompt = true;  // the text ends where the model's answer begins
  /// The text ends inside the last message, which the answer goes on with; not together with
  /// add_generation_prompt. As in transformers.
  bool continue_final_message = false;
  /// Whether the tokens with which the tokenizer begins and ends a text are added. Not given: to
  /// `text`, not to conversations, whose template writes them.
  std::optional<bool> add_special_tokens{};
  int64_t truncate_prompt_tokens = 0;  // of the prompt the last so many stay, at least 0; 0: all

  /// Instead of `adapter`: up to 64, none twice, that act together. Wherever one adapter would add
  /// its delta to a product, sum_i scale_i (alpha_i / rank_i) B_i A_i x is added, in the order of
  /// the list, those of one dtype together. One of scale 1 is `adapter`. Adapters with DoRA,
  /// modules_to_save or trainable_token_indices must be alone with scale 1, those with aLoRA alone.
  /// Tokenizer, chat template and end tokens are those of the first.
  AdapterList adapters{};
  /// How the list acts together; of RequestVariant those lists that have two adapters or more. A
  /// merge other than kLinear takes 2 to 64 adapters with nothing but LoRA, is made once for all
  /// requests that ask for the same of the same contents, and is kept and evicted as an adapter of
  /// EngineOptions::adapter_dir. It reads the adapters' files: where they have changed since an
  /// adapter was added, the request ends with an error. What the method has no use for must be as
  /// it is here.
  AdapterMerge merge{};
  std::vector<TokenBias> logit_bias{};  // as in vLLM and OpenAI's API; each token once
  /// Tokens of the answer before anything but its length ends it, 0 to max_tokens: until then end
  /// token and stop_token_ids are not drawn, and stop strings are not looked for. As in vLLM.
  int64_t min_tokens = 0;
  std::vector<int32_t> stop_token_ids{};  // end the answer as the end token does
  /// Words that the answer must not have, as in vLLM: where it ends with all tokens of a word but
  /// the last, that is not drawn. Of each word its tokens at the beginning of a text and, where
  /// they are as many, after a space; other tokens of the same text may be drawn.
  std::vector<std::string> bad_words{};
  std::vector<int32_t> allowed_token_ids{};  // none but these are drawn; empty: all
  bool include_stop = false;                 // the text ends after the stop string that was met
  bool skip_special_tokens = false;          // control tokens of the answer have no text
  /// Events have the tokens, each when it is drawn, and the last has the prompt's.
  bool tell_tokens = false;

  /// The most likely tokens at each place of the answer, with their log-probabilities: how many, 0
  /// to 100 and no more than the vocabulary has. As in vLLM they are the model's own.
  int32_t top_logprobs = 0;
  /// The prompt's tokens get log-probabilities, too, and the most likely ones in their places where
  /// top_logprobs is above 0. So they do with max_tokens 0.
  bool prompt_logprobs = false;

  /// Requests take keys and values from the prefix cache of those with the same salt alone: one for
  /// each tenant keeps any of them from measuring what others have asked. As in vLLM.
  std::string cache_salt{};

  /// With EngineOptions::fairness "tenant": whose request this is, up to 256 bytes, any text; all
  /// requests without a tenant are of one. Else it must be empty.
  std::string tenant{};
  /// The share of the tenant, or with fairness "adapter" of the adapter, relative to those of
  /// others, 0.001 to 1000; it holds for all its requests from this one on. With fairness "off" it
  /// must be 1.
  double tenant_weight = 1;
  /// Of the requests that wait, those of the lowest start first, whoever's they are, and where
  /// pages run out those of the largest are parked first; any number, as in vLLM. Those of one
  /// priority have their order and their shares among themselves. Larger ones wait as long as lower
  /// ones come. No bit of an answer depends on it.
  int64_t priority = 0;

  /// SpeculationOptions::method of the row: one that the engine has, or "off"; empty: the engine's.
  std::string speculation{};
  /// What the answer probably is, or has much of: a file of which it changes some lines. Its tokens
  /// are drafts, as in OpenAI's predicted outputs; no bit of the answer depends on it. It needs an
  /// engine that speculates. Empty: nothing is known.
  std::string prediction{};

  /// What the answer must be. A format that is wrong, too large or takes too long to compile ends
  /// the request with an error that says where. min_tokens and stop strings act as ever: they may
  /// end the answer before it has its format. It binds the text from the first token on, so
  /// `ignore_end` and bad_words must leave something to draw.
  AnswerFormat format{};
  ThinkingLimit thinking{};

  /// With a kind, Completion::values are all that the request gives: max_tokens, the sampling
  /// options and the ends of answers do not count, and top_logprobs, prompt_logprobs, min_tokens,
  /// logit_bias, bad_words, allowed_token_ids, format and thinking must not be given. It ends with
  /// kStop.
  WantedValues values{};
};

/// In what a row of Engine::submit_each differs from its request.
struct RequestVariant {
  /// In place of the request's adapters; empty: those. Not both.
  AdapterList adapters{};
  int64_t seed_offset = 0;  // added to SamplingOptions::seed
};

/// Variants for `n` answers to one prompt, 1 to 128: seed offsets 0, 1, ..., as in vLLM. Throws
/// Error where n is out of its range.
[[nodiscard]] std::vector<RequestVariant> sample_variants(int64_t n);

enum class FinishReason : uint8_t { kStop, kLength, kError, kCancelled };
/// "stop", "length", "error" or "cancelled".
[[nodiscard]] const char* name(FinishReason reason);

/// The kind of an error of a request, for programs; people read its sentence.
enum class RequestError : uint8_t {
  kNone,             // it did not end with kError
  kInvalidArgument,  // it is wrong, or its adapter cannot be read
  kUnsupported,      // nothing is wrong with it, but heddle does not have it
  kUnknownAdapter,   // no adapter has the name
  kOutOfMemory,      // for the row, or there is never room for its adapters
  kEngineEnded,      // the GPU has failed: all later requests end so, too
  kNotFinite         // its logits are no numbers: the model or an adapter is damaged
};
/// "none", "invalid_argument", "unsupported", "unknown_adapter", "out_of_memory", "engine_ended" or
/// "not_finite".
[[nodiscard]] const char* name(RequestError error);
/// What a request ends with that meets this exception; that of Engine::check, for one.
[[nodiscard]] RequestError request_error(const std::exception& thrown) noexcept;

/// Thrown where no adapter has a name; kInvalidArgument.
class UnknownAdapter : public Error {
 public:
  explicit UnknownAdapter(const std::string& what) : Error(ErrorCode::kInvalidArgument, what) {}
};

/// The texts of tokens. Immutable, for any thread, also when the engine is gone.
class TokenTexts {
 public:
  TokenTexts() = default;
  TokenTexts(const TokenTexts&) = delete;
  TokenTexts& operator=(const TokenTexts&) = delete;
  virtual ~TokenTexts() = default;

  /// The token's bytes within a text, maybe a part of a character; empty for an id that no token
  /// has. Valid as long as this is.
  [[nodiscard]] virtual std::string_view bytes(int32_t id) const = 0;
  /// Whether it is a mark such as the end of a turn.
  [[nodiscard]] virtual bool is_special(int32_t id) const = 0;
};

/// Prompts to tokens, and tokens to text. Immutable, for any thread, also while the engine runs
/// steps and after it has been destroyed.
class PromptTokenizer {
 public:
  PromptTokenizer() = default;
  PromptTokenizer(const PromptTokenizer&) = delete;
  PromptTokenizer& operator=(const PromptTokenizer&) = delete;
  virtual ~PromptTokenizer() = default;

  /// The tokens of the request's prompt as Engine::submit makes them. Throws Error where it has
  /// none, or the template refuses it.
  [[nodiscard]] virtual std::vector<int32_t> tokenize(const Request& request) const = 0;
  /// The text of tokens, as bytes: maybe not UTF-8 where they end inside a character. Throws Error
  /// where one is none of the tokenizer's.
  [[nodiscard]] virtual std::string detokenize(std::span<const int32_t> tokens) const = 0;
  /// The texts of single tokens.
  [[nodiscard]] virtual std::shared_ptr<const TokenTexts> texts() const = 0;
};

/// Tokens of an answer that were drawn one after another.
struct DrawnTokens {
  std::vector<int32_t> ids{};
  std::vector<float> logprobs{};  // [ids.size()]
  // [ids.size() * top_logprobs], as in Completion:
  std::vector<int32_t> top_ids{};
  std::vector<float> top_logprobs{};
};

/// Where a request went on with other weights of its adapter: RunningRequests::kSwitch.
struct AdapterSwitch {
  int64_t position = 0;  // of prompt and answer the first token that was computed with them
  int64_t token = 0;     // of the answer the first that was drawn with them
};

/// What a request has become. One that ended with kError or kCancelled has what its answer was so
/// far.
struct Completion {
  std::string text;                // without the end token and without what follows a stop string
  std::vector<int32_t> token_ids;  // without the end token
  std::vector<float> logprobs;  // natural log of each chosen token's probability, one per token id
  // With top_logprobs k: [token_ids.size() * k], for each place k tokens, the most likely first,
  // and their log-probabilities.
  std::vector<int32_t> top_token_ids{};
  std::vector<float> top_logprobs{};
  // With prompt_logprobs: [prompt_tokens], of each of its tokens given those before it, NaN for the
  // first, which has none; and with top_logprobs k [prompt_tokens * k], -1 and NaN there.
  std::vector<float> prompt_logprobs{};
  std::vector<int32_t> prompt_top_token_ids{};
  std::vector<float> prompt_top_logprobs{};
  // With Request::values.
  std::vector<float> values{};
  std::vector<std::string> labels{};  // [values.size()], of classes
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;                // of these: the prefix cache had their keys and values
  std::vector<int32_t> prompt_token_ids{};  // with tell_tokens
  std::shared_ptr<const TokenTexts> token_texts{};  // with tell_tokens
  std::string stop{};        // the stop string that ended the answer; empty: none did
  int32_t stop_token = -1;   // the one of stop_token_ids that ended it; -1: none did
  double wait_seconds = 0;   // from when it was submitted to when it began to run
  DraftCounts drafts{};      // of the row; those that were accepted are tokens of the answer
  DraftCounts prediction{};  // of these: from Request::prediction
  std::vector<AdapterSwitch> adapter_switches{};  // by ascending position; none: as it began
  std::string earlier_digests{};  // of each, with spaces between: adapter_digest until then
  FinishReason finish_reason = FinishReason::kStop;
  /// AdapterReceipt::digest of the weights that it ran with, of a list those of all joined by '+',
  /// of a merge that of what it is; empty for the base model and for one that never ran.
  std::string adapter_digest{};
  std::string error;  // with kError: one sentence
  RequestError error_code = RequestError::kNone;
};

using RequestId = int64_t;

/// What is new of one request, from Engine::step.
struct Event {
  RequestId request = 0;
  std::string text{};                      // text that has become final since the last event
  std::optional<Completion> completion{};  // set with the last event of a request
  // With Request::tell_tokens: those drawn since the last event.
  DrawnTokens tokens{};
  std::shared_ptr<const TokenTexts> token_texts{};
  int64_t prompt_tokens = 0, cached_tokens = 0;  // as in Completion
};

}  // namespace heddle
