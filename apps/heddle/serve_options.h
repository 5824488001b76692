#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "options.h"

namespace heddle::app {

/// How much one request may ask for; more is refused with 400, a longer body with 413.
struct RequestLimits {
  int64_t body_bytes = 8 << 20;
  int64_t messages = 1024;
  int64_t prompts = 128;  // of one completion request
  int64_t n = 16;         // answers to one prompt
  int64_t stop_strings = 16;
  int64_t logit_bias = 1024;  // entries
  int64_t top_logprobs = 20;
  int64_t default_max_tokens = 4096;  // of an answer where the request gives none
};

/// What `heddle serve` is told.
struct ServeOptions {
  ModelOptions model;
  std::string host = "127.0.0.1";
  int port = 8000;                        // 0: one that is free
  std::vector<std::string> served_names;  // of the base model, the first in answers; empty: its own
  std::string tls_cert, tls_key;          // PEM files; empty: plain HTTP
  std::string api_key_file, admin_key_file;  // a key in each line; empty: none
  std::vector<std::string> allowed_hosts;    // beside the bind address and localhost
  std::vector<std::string> cors_origins;     // "*": all
  bool ignore_unknown_fields = false;
  bool allow_request_templates = false;
  RequestLimits limits;
  int64_t max_waiting = 1024;  // rows that wait for a place in the batch
  int max_connections = 4096;
  int64_t stream_buffer = 1 << 20;  // bytes of a stream that its reader has not taken
  double stream_timeout = 30;       // seconds that a reader may take nothing
  double drain_timeout = 30;        // seconds that rows have to end after SIGTERM
  bool log_json = false;
};

/// Declares `heddle serve`.
void add_serve(CLI::App& app, ServeOptions& options);

}  // namespace heddle::app
