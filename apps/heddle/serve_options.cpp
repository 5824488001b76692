#include "serve_options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

#include "heddle/core/error.h"

#include "byte_size.h"
#include "command_line.h"
#include "option_group.h"

namespace heddle::app {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

void add_size(const OptionGroup& group, const char* name, int64_t& bytes, const char* shown,
              const char* help) {
  const auto read = [&bytes, name](const std::string& text) {
    const std::optional<int64_t> size = parse_byte_size(text);
    HEDDLE_CHECK(size, name, " ", text, ": expected a size such as 8M");
    bytes = *size;
  };
  group.text(name, read, shown, "SIZE", help);
}

void add_network_options(CLI::App& command, ServeOptions& options) {
  const OptionGroup group(command, "Network");
  group.value("--host", options.host, "ADDRESS", "Address to listen on")->capture_default_str();
  group.number("--port", options.port, 0, 65535, "", "Port to listen on; 0: one that is free");
  CLI::Option* cert = group.value("--tls-cert", options.tls_cert, "FILE",
                                  "PEM file with the certificate; serves HTTPS");
  CLI::Option* key =
      group.value("--tls-key", options.tls_key, "FILE", "PEM file with its private key");
  cert->needs(key);
  key->needs(cert);
  group.number("--max-connections", options.max_connections, 1, 1000000, "",
               "Maximum number of open connections");
  add_size(group, "--stream-buffer", options.stream_buffer, "1M",
           "Bytes of a stream that wait for a slow reader; when they are full the answer pauses");
  add_size(group, "--max-buffered", options.max_buffered, "256M",
           "Bytes of unfinished bodies and of answers that wait for their readers, in all");
  group.number("--stream-timeout", options.stream_timeout, 0.001, 1e9, "",
               "Seconds in which a reader may take nothing before its answer ends");
  group.number("--drain-timeout", options.drain_timeout, 0.0, 1e9, "",
               "Seconds that running rows have to finish after SIGTERM");
}

void add_access_options(CLI::App& command, ServeOptions& options) {
  const OptionGroup group(command, "Access");
  group.value("--api-key-file", options.api_key_file, "FILE",
              "File of keys, a line each: KEY, NAME KEY or NAME KEY WEIGHT; each request must "
              "bring one of them");
  group.value("--admin-key-file", options.admin_key_file, "FILE",
              "File of keys for loading and unloading adapters; without it these routes do not "
              "exist");
  group.value("--limits", options.limits_file, "FILE",
              "TOML file of what the names in --api-key-file may do: requests-per-minute, "
              "tokens-per-minute, max-rows, adapters and priority");
  group.list("--allowed-host", options.allowed_hosts, "NAME",
             "Name that the header Host may have in addition to the address and localhost; *: any; "
             "can be repeated");
  group.list("--cors-origin", options.cors_origins, "ORIGIN",
             "Origin whose pages may use the server; *: all; can be repeated");
}

void add_fetch_options(CLI::App& command, FetchOptions& options) {
  const OptionGroup group(command, "Sources");
  group
      .list("--adapter-source", options.sources, "SOURCE",
            "Source from which requests may have adapters fetched: hub, the Hugging Face hub or "
            "$HF_ENDPOINT; s3, Amazon S3 or $AWS_ENDPOINT_URL; can be repeated; without it nothing "
            "is fetched")
      ->check(CLI::IsMember({"hub", "s3"}));
  group.list("--adapter-source-allow", options.allowed, "PATTERN",
             "Names that may be fetched, such as acme/*, acme/sql or s3://bucket/*; can be "
             "repeated");
  group.value("--adapter-cache", options.cache, "DIR",
              "Folder for fetched adapters, which this server has for itself");
  add_size(group, "--adapter-cache-size", options.cache_bytes, "10G",
           "Maximum size of that folder; the least recently used adapters make room");
  group.number("--adapter-refresh", options.refresh, 0.0, 1e9, "",
               "Seconds after which the source is asked what a branch is now");
  group.number("--download-wait", options.wait, 0.0, 1e6, "",
               "Seconds that a request waits for a download before it gets 503");
  group.flag("--allow-request-tokens", options.takes_request_tokens,
             "Lets requests bring a token of their own for the source, api_token");
}

void add_parser_options(CLI::App& command, ServeOptions& options) {
  const OptionGroup group(command, "Answers");
  group.value(
      "--tool-parser,--tool-call-parser", options.tool_parser, "PARSER",
      "Form in which the model calls tools, such as hermes, mistral or llama3_json; without "
      "it each chat template says it");
  group.value("--reasoning-parser", options.reasoning_parser, "PARSER",
              "Marks around the thoughts of the model, such as qwen3 or mistral; without it each "
              "chat template says it");
  group
      .value("--tool-strict-level", options.tool_strict_level, "LEVEL",
             "How far calls are held to their tools: auto, as tool_choice and the strict of each "
             "tool say; function, form and names always; parameter, arguments too")
      ->check(CLI::IsMember({"auto", "function", "parameter"}))
      ->capture_default_str();
  command
      .add_flag_callback(
          "--enable-auto-tool-choice", [] {},
          "As without it: a request's tools may be called unless its tool_choice is none")
      ->group("Answers");
}

void add_count(const OptionGroup& group, const char* name, int64_t& value, int64_t max,
               const char* help) {
  group.number(name, value, int64_t{0}, max, "N", help);
}

/// What one request may ask for.
void add_request_limits(CLI::App& command, RequestLimits& limits) {
  const OptionGroup group(command, "Limits");
  const auto add = [&group](const char* name, int64_t& value, int64_t max, const char* help) {
    add_count(group, name, value, max, help);
  };
  add("--max-messages", limits.messages, kMax, "Maximum number of messages in a conversation");
  add("--max-prompts", limits.prompts, kMax, "Maximum number of prompts in a completion request");
  add("--max-n", limits.n, 128, "Maximum number of answers to one prompt");
  add("--max-stop-strings", limits.stop_strings, kMax, "Maximum number of stop strings");
  add("--max-bad-words", limits.bad_words, kMax, "Maximum number of entries of bad_words");
  add("--max-logit-bias", limits.logit_bias, kMax, "Maximum number of entries of logit_bias");
  add("--max-top-logprobs", limits.top_logprobs, 100,
      "Maximum number of most likely tokens listed at a position");
  group
      .value("--default-max-tokens", limits.default_max_tokens, "N",
             "Tokens of a chat answer if the request does not give it; without this option the "
             "model's generation_config.json may give it")
      ->default_str(std::to_string(kDefaultMaxTokens))
      ->check(CLI::Range(int64_t{0}, kMax));
}

void add_server_limits(CLI::App& command, ServeOptions& options) {
  const OptionGroup group(command, "Limits");
  RequestLimits& limits = options.limits;
  add_size(group, "--max-body", limits.body_bytes, "8M", "Maximum size of a request's body");
  add_size(group, "--max-adapter-body", limits.adapter_bytes, "256M",
           "Maximum size of a body that brings an adapter's weights; needs room in --max-buffered");
  add_count(group, "--response-store", options.response_store, kMax,
            "Responses of /v1/responses that are kept in memory for previous_response_id; 0: none");
  add_size(group, "--response-store-size", options.response_store_bytes, "64M",
           "Maximum size of these responses and their conversations, in all");
  add_count(
      group, "--max-waiting", options.max_waiting, kMax,
      "Maximum number of answers that wait for a place in the batch; further requests get 429");
}

/// NAME=WEIGHT, cut at the last '='.
void add_weight(std::map<std::string, double>& weights, const std::string& text) {
  constexpr double kLeast = 1e-3, kMost = 1e3;
  const size_t at = text.rfind('=');
  HEDDLE_CHECK(at != std::string::npos && at > 0, "--adapter-weight ", text,
               ": expected NAME=WEIGHT");
  double weight = 0;
  const auto [end, error] =
      std::from_chars(text.data() + at + 1, text.data() + text.size(), weight);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  HEDDLE_CHECK(is_number && weight >= kLeast && weight <= kMost, "--adapter-weight ", text,
               ": expected a number from ", kLeast, " to ", kMost, " after the '='");
  HEDDLE_CHECK(weights.emplace(text.substr(0, at), weight).second, "--adapter-weight ", text,
               ": the adapter has a weight already");
}

void add_share_options(CLI::App& command, ServeOptions& options) {
  const OptionGroup group(command, "Limits");
  const auto share = [&options](const std::string& who) {
    options.fairness = who;
    options.model.engine.fairness = who == "key" ? "tenant" : who;
  };
  group
      .text("--fairness", share, "off", "WHO",
            "Who shares the engine when answers wait: adapter or key, so that a burst of one does "
            "not hold up the others; off: first come, first served")
      ->check(CLI::IsMember({"off", "adapter", "key"}));
  const auto weigh = [&options](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) add_weight(options.adapter_weights, text);
  };
  command
      .add_option_function<std::vector<std::string>>(
          "--adapter-weight", weigh,
          "Share of an adapter with --fairness adapter, relative to the others' 1; base: of the "
          "model without one; can be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME=WEIGHT")
      ->group("Limits");
}

/// --max-body also is HEDDLE_SERVE_MAX_BODY.
void add_environment(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty()) continue;
    std::string name = "HEDDLE_SERVE_" + option->get_lnames().front();
    std::ranges::transform(name, name.begin(), [](char c) {
      return c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    });
    if (option->get_lnames().front() != "help") option->envname(name);
  }
}

void add_served_model(CLI::App& command, ServeOptions& options) {
  add_model_options(command, options.model);
  command.get_option("--adapters")->description("Same as --lora-root");
  const OptionGroup model(command, "Model");
  model.value("--lora-root", options.model.engine.adapter_dir, "DIR",
              "Folder of adapters; each is loaded when a request first names its folder");
  add_max_batch(command, options.model.engine);
  model.value("--served-model-name", options.served_names, "NAME",
              "Names of the base model, the first of them used in answers; default: the name of "
              "its file or folder");
}

/// What requests may have.
void add_request_options(CLI::App& command, ServeOptions& options) {
  const OptionGroup group(command, "Access");
  group.flag("--allow-request-templates", options.allow_request_templates,
             "Lets requests bring a chat template of their own");
  group.flag("--ignore-unknown-fields", options.ignore_unknown_fields,
             "Ignores fields of requests that heddle does not know, instead of refusing them");
}

}  // namespace

void complete_fetch(ServeOptions& options) {
  const FetchOptions& fetch = options.fetch;
  if (fetch.sources.empty()) {
    HEDDLE_CHECK(fetch.allowed.empty() && fetch.cache.empty() && !fetch.takes_request_tokens,
                 "--adapter-source is missing: without it no adapter is fetched");
    return;
  }
  HEDDLE_CHECK(!fetch.allowed.empty(),
               "--adapter-source needs --adapter-source-allow, such as acme/* or, for all, *");
  HEDDLE_CHECK(!fetch.cache.empty(), "--adapter-source needs --adapter-cache, a folder");
  options.model.engine.fetched_adapter_dir = fetch.cache + "/adapters";
}

void add_serve(CLI::App& app, ServeOptions& options) {
  CLI::App* command =
      app.add_subcommand("serve", "Serves an OpenAI-compatible API with many adapters");
  add_served_model(*command, options);
  add_network_options(*command, options);
  add_access_options(*command, options);
  add_request_options(*command, options);
  add_fetch_options(*command, options.fetch);
  add_parser_options(*command, options);
  add_server_limits(*command, options);
  add_request_limits(*command, options.limits);
  add_share_options(*command, options);
  OptionGroup(*command, "Log")
      .flag("--log-json", options.log_json, "Writes log lines as JSON objects");
  OptionGroup(*command, "Configuration")
      .value("--config", options.config, "FILE",
             "TOML file of options, such as port = 8080; options given here override it");
  add_environment(*command);
  command->footer(
      "heddle serve --adapter sql=examples/adapters/sql\n"
      "heddle serve --lora-root examples/adapters --port 8080");
}

void add_run_batch(CLI::App& app, BatchOptions& options) {
  CLI::App* command = app.add_subcommand(
      "run-batch", "Answers an OpenAI batch file by the routes of the server, without a network");
  const OptionGroup group(*command, "Batch");
  group
      .value("-i,--input-file", options.input, "FILE",
             "File with a JSON object on each line: custom_id, method, url and body")
      ->required();
  group
      .value("-o,--output-file", options.output, "FILE",
             "File of the answers, a line each, in the order in which they are finished; it is "
             "overwritten")
      ->required();
  group.flag("-q,--quiet", options.quiet, "No progress and no counts");
  add_served_model(*command, options.serve);
  add_request_options(*command, options.serve);
  add_fetch_options(*command, options.serve.fetch);
  add_parser_options(*command, options.serve);
  add_request_limits(*command, options.serve.limits);
  command->footer("heddle run-batch -i in.jsonl -o out.jsonl --lora-root examples/adapters");
}

}  // namespace heddle::app
