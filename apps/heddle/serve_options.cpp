#include "serve_options.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <string>

#include "heddle/core/error.h"

#include "byte_size.h"
#include "command_line.h"

namespace heddle::app {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

CLI::Option* add_size(CLI::App& command, const char* name, int64_t& bytes, const char* shown,
                      const char* help) {
  return command
      .add_option_function<std::string>(
          name,
          [&bytes, name](const std::string& text) {
            const std::optional<int64_t> size = parse_byte_size(text);
            HEDDLE_CHECK(size, name, " ", text, ": expected a size such as 8M");
            bytes = *size;
          },
          help)
      ->default_str(shown)
      ->type_name("SIZE");
}

void add_network_options(CLI::App& command, ServeOptions& options) {
  constexpr const char* kGroup = "Network";
  command.add_option("--host", options.host, "Address to listen on")
      ->capture_default_str()
      ->type_name("ADDRESS")
      ->group(kGroup);
  command.add_option("--port", options.port, "Port to listen on; 0: one that is free")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535))
      ->group(kGroup);
  CLI::Option* cert =
      command
          .add_option("--tls-cert", options.tls_cert, "PEM file with the certificate; serves HTTPS")
          ->type_name("FILE")
          ->group(kGroup);
  CLI::Option* key =
      command.add_option("--tls-key", options.tls_key, "PEM file with its private key")
          ->type_name("FILE")
          ->group(kGroup);
  cert->needs(key);
  key->needs(cert);
  command
      .add_option("--max-connections", options.max_connections,
                  "Maximum number of open connections")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000))
      ->group(kGroup);
  add_size(command, "--stream-buffer", options.stream_buffer, "1M",
           "Bytes of a stream that wait for a slow reader; when they are full the answer pauses")
      ->group(kGroup);
  add_size(command, "--max-buffered", options.max_buffered, "256M",
           "Bytes of unfinished bodies and of answers that wait for their readers, in all")
      ->group(kGroup);
  command
      .add_option("--stream-timeout", options.stream_timeout,
                  "Seconds in which a reader may take nothing before its answer ends")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e9))
      ->group(kGroup);
  command
      .add_option("--drain-timeout", options.drain_timeout,
                  "Seconds that running rows have to finish after SIGTERM")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e9))
      ->group(kGroup);
}

void add_access_options(CLI::App& command, ServeOptions& options) {
  constexpr const char* kGroup = "Access";
  command
      .add_option("--api-key-file", options.api_key_file,
                  "File of keys, one per line; each request must bring one of them")
      ->type_name("FILE")
      ->group(kGroup);
  command
      .add_option(
          "--admin-key-file", options.admin_key_file,
          "File of keys for loading and unloading adapters; without it these routes do not exist")
      ->type_name("FILE")
      ->group(kGroup);
  command
      .add_option(
          "--allowed-host", options.allowed_hosts,
          "Name that the header Host may have in addition to the address and localhost; *: any; "
          "can be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME")
      ->group(kGroup);
  command
      .add_option("--cors-origin", options.cors_origins,
                  "Origin whose pages may use the server; *: all; can be repeated")
      ->allow_extra_args(false)
      ->type_name("ORIGIN")
      ->group(kGroup);
  command
      .add_flag("--allow-request-templates", options.allow_request_templates,
                "Lets requests bring a chat template of their own")
      ->group(kGroup);
  command
      .add_flag("--ignore-unknown-fields", options.ignore_unknown_fields,
                "Ignores fields of requests that heddle does not know, instead of refusing them")
      ->group(kGroup);
}

void add_limit(CLI::App& command, const char* name, int64_t& value, int64_t most,
               const char* help) {
  command.add_option(name, value, help)
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, most))
      ->type_name("N")
      ->group("Limits");
}

void add_limit_options(CLI::App& command, ServeOptions& options) {
  RequestLimits& limits = options.limits;
  add_size(command, "--max-body", limits.body_bytes, "8M", "Maximum size of a request's body")
      ->group("Limits");
  add_limit(command, "--max-messages", limits.messages, kMost,
            "Maximum number of messages in a conversation");
  add_limit(command, "--max-prompts", limits.prompts, kMost,
            "Maximum number of prompts in a completion request");
  add_limit(command, "--max-n", limits.n, 128, "Maximum number of answers to one prompt");
  add_limit(command, "--max-stop-strings", limits.stop_strings, kMost,
            "Maximum number of stop strings");
  add_limit(command, "--max-bad-words", limits.bad_words, kMost,
            "Maximum number of entries of bad_words");
  add_limit(command, "--max-logit-bias", limits.logit_bias, kMost,
            "Maximum number of entries of logit_bias");
  add_limit(command, "--max-top-logprobs", limits.top_logprobs, 100,
            "Maximum number of most likely tokens listed at a position");
  command
      .add_option(
          "--default-max-tokens", limits.default_max_tokens,
          "Tokens of a chat answer if the request does not give it; without this option the "
          "model's generation_config.json may give it")
      ->default_str(std::to_string(kDefaultMaxTokens))
      ->check(CLI::Range(int64_t{0}, kMost))
      ->type_name("N")
      ->group("Limits");
  add_limit(
      command, "--max-waiting", options.max_waiting, kMost,
      "Maximum number of answers that wait for a place in the batch; further requests get 429");
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

}  // namespace

void add_serve(CLI::App& app, ServeOptions& options) {
  CLI::App* command =
      app.add_subcommand("serve", "Serves an OpenAI-compatible API with many adapters");
  add_model_options(*command, options.model);
  command->get_option("--adapters")->description("Same as --lora-root");
  command
      ->add_option("--lora-root", options.model.engine.adapter_dir,
                   "Folder of adapters; each is loaded when a request first names its folder")
      ->type_name("DIR")
      ->group("Model");
  command
      ->add_option("--max-batch", options.model.engine.max_batch,
                   "Maximum number of rows that run at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096))
      ->group("Engine");
  command
      ->add_option("--served-model-name", options.served_names,
                   "Names of the base model, the first of them used in answers; default: the name "
                   "of its file or folder")
      ->type_name("NAME")
      ->group("Model");
  add_network_options(*command, options);
  add_access_options(*command, options);
  add_limit_options(*command, options);
  command->add_flag("--log-json", options.log_json, "Writes log lines as JSON objects")
      ->group("Log");
  command
      ->add_option("--config", options.config,
                   "TOML file of options, such as port = 8080; options given here override it")
      ->type_name("FILE")
      ->group("Configuration");
  add_environment(*command);
  command->footer(
      "heddle serve --adapter sql=examples/adapters/sql\n"
      "heddle serve --lora-root examples/adapters --port 8080");
}

}  // namespace heddle::app
