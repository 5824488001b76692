#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "heddle/engine/engine.h"

namespace heddle::app {

/// The name of the model without an adapter.
inline constexpr const char* kBaseName = "base";

struct NamedAdapter {
  std::string name, folder;
};

/// A model and its adapters.
struct ModelOptions {
  EngineOptions engine;  // model_path may be empty: find_model
  std::vector<NamedAdapter> adapters;
  bool strict = false;  // an adapter that names another model is an error
};

/// How answers are made where a row does not say it. `max_tokens` and `sampling` are the program's
/// own; what the model's files give goes before it, and what the command line gives before that
/// (complete_answer).
struct AnswerOptions {
  std::string use;  // an adapter, or kBaseName; empty: not given
  std::optional<std::string> system;
  int64_t max_tokens = 256;
  SamplingOptions sampling;  // row i draws with seed + i
  GenerationDefaults given;  // on the command line
  std::vector<std::string> stop;
  std::vector<TokenBias> logit_bias;
  int64_t min_tokens = 0;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> bad_words;
  int32_t top_logprobs = 0;
  bool prompt_logprobs = false;
  AnswerFormat format;
  int64_t n = 1;        // answers to each prompt
  WantedValues values;  // numbers in place of answers: `heddle embed`
};

/// What lines of a file or of standard input are.
enum class LineFormat : uint8_t {
  kAuto,  // rows in JSON where the name says so or the first line begins with {, else prompts
  kJson,
  kText,
};

struct GenerateOptions {
  ModelOptions model;
  AnswerOptions answer;
  std::string prompts_path;          // "-": standard input; empty: `prompts`
  std::vector<std::string> prompts;  // messages of a user, or plain text with `raw`
  LineFormat input = LineFormat::kAuto;
  bool raw = false;
  bool keep_going = false;  // wrong rows of a file are answered with their error
  bool json = false, ordered = false, logprobs = false, quiet = false;
  int64_t hold = 1024;      // with `ordered`: finished rows that wait for an earlier one, at most
  std::string resume_path;  // empty: answers go to standard output
  std::string stats_path;   // empty: no file
};

/// Tokens of a chat answer where neither request, command line nor model says how many.
inline constexpr int64_t kDefaultMaxTokens = 4096;

/// The limits of one request; what exceeds them is refused with 400, a longer body with 413.
struct RequestLimits {
  int64_t body_bytes = 8 << 20;
  int64_t adapter_bytes = 256 << 20;  // of a body with an adapter
  int64_t messages = 1024;
  int64_t prompts = 128;  // of one completion request
  int64_t n = 16;         // answers to one prompt
  int64_t stop_strings = 16;
  int64_t bad_words = 256;
  int64_t logit_bias = 1024;  // entries
  int64_t top_logprobs = 20;
  // Of an answer where the request gives none; not given: as the model's files have it, else
  // kDefaultMaxTokens.
  std::optional<int64_t> default_max_tokens{};
};

/// From where `heddle serve` may fetch adapters, and where it keeps them.
struct FetchOptions {
  std::vector<std::string> sources;  // "hub", "s3"; empty: nothing is fetched
  std::vector<std::string> allowed;  // patterns of their names there
  std::string cache;                 // a folder
  int64_t cache_bytes = int64_t{10} << 30;
  double refresh = 300;  // seconds that a branch is taken to be what it was
  double wait = 60;      // seconds that a request waits for a download
  bool takes_request_tokens = false;
};

/// The options of `heddle serve`.
struct ServeOptions {
  ModelOptions model;
  std::string host = "127.0.0.1";
  int port = 8000;                        // 0: one that is free
  std::vector<std::string> served_names;  // of the base model, the first in answers; empty: its own
  std::string tls_cert, tls_key;          // PEM files; empty: plain HTTP
  std::string api_key_file, admin_key_file;  // a key in each line; empty: none
  std::string limits_file;                   // TOML, of what each key may do; empty: none
  std::vector<std::string> allowed_hosts;    // in addition to the bind address and localhost
  std::vector<std::string> cors_origins;     // "*": all
  bool ignore_unknown_fields = false;
  bool allow_request_templates = false;
  FetchOptions fetch;
  std::string tool_parser, reasoning_parser;  // names of src/answers; empty: as templates have it
  std::string tool_strict_level = "auto";     // "auto", "function" or "parameter"
  RequestLimits limits;
  GenerationDefaults generation;  // of the model's files, when it is loaded
  int64_t max_waiting = 1024;     // rows that wait for a place in the batch
  std::string fairness = "off";   // who shares the engine: "off", "adapter" or "key"
  std::map<std::string, double> adapter_weights;  // their shares; those not here have 1
  int max_connections = 4096;
  int64_t stream_buffer = 1 << 20;          // bytes of a stream that its reader has not taken
  int64_t max_buffered = 256 << 20;         // bytes of bodies and answers that are held, in all
  double stream_timeout = 30;               // seconds that a reader may take nothing
  double drain_timeout = 30;                // seconds that rows have to end after SIGTERM
  int64_t response_store = 0;               // responses of /v1/responses that are kept
  int64_t response_store_bytes = 64 << 20;  // of these, in all
  bool log_json = false;
  std::string config;  // TOML file; read before the options are
};

/// The options of `heddle run-batch`.
struct BatchOptions {
  ServeOptions serve;  // but for those of network, keys and shares
  std::string input, output;
  bool quiet = false;
};

}  // namespace heddle::app
