#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "heddle/engine/request.h"

namespace heddle {

struct EngineOptions {
  std::string model_path{};  // a GGUF file
  int max_batch = 16;        // rows that run at once
  int num_threads = 0;       // 0: one per processor
  int page_size = 16;        // tokens in a page of the KV cache
  int prefill_chunk = 512;   // prompt tokens that one step takes in, at most
  int64_t max_context = 0;   // tokens of one row, prompt and answer; 0: what the model was made for
};

/// Facts of the loaded model.
struct ModelInfo {
  std::string path, name, architecture;
  int64_t num_layers = 0, hidden_size = 0, intermediate_size = 0;
  int64_t num_q_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t vocab_size = 0, context_length = 0;
  int64_t num_parameters = 0, weight_bytes = 0;
};

/// Facts of a loaded adapter.
struct AdapterInfo {
  std::string name, folder;
  std::string base_model;  // the model it was made for, as its configuration names it; may be empty
  /// Whether base_model may be the engine's model: it is empty, or agrees with one of the names
  /// that the model's file has and gives.
  bool names_this_model = true;
};

/// Where the time of an engine has gone, in seconds, and what it did. A step that takes in prompt
/// tokens counts as prefill.
struct EngineStats {
  double prefill_seconds = 0, decode_seconds = 0;
  double lora_seconds = 0;       // part of both
  int64_t prefill_tokens = 0;    // prompt tokens taken in
  int64_t decode_tokens = 0;     // tokens drawn in decode steps
  int64_t generated_tokens = 0;  // tokens drawn in all steps
  int64_t prefill_steps = 0, decode_steps = 0;
};

/// Runs one model with many LoRA adapters: requests go in, rows of one batch use an adapter each,
/// events come out. A request's tokens and log-probabilities do not depend on what runs beside it,
/// on the threads, the page size or the size of the prefill chunks. One thread owns an engine.
class Engine {
 public:
  /// Loads the model. Throws Error with the file and the field or tensor that is wrong.
  explicit Engine(const EngineOptions& options);
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  /// Loads a PEFT adapter from a folder. Throws Error if it does not fit the model or the name is
  /// taken.
  AdapterInfo add_adapter(const std::string& name, const std::string& folder);
  [[nodiscard]] bool has_adapter(const std::string& name) const;

  [[nodiscard]] const ModelInfo& model() const;
  [[nodiscard]] const EngineOptions& options() const;  // with the defaults filled in

  /// Queues a request. One that cannot run (an unknown adapter, a prompt longer than the context, a
  /// template that refuses it) does not throw: it ends with finish_reason kError. Every request has
  /// exactly one event with a completion, its last, however it ends.
  RequestId submit(const Request& request);
  /// Throws the Error with which `submit` would end the request.
  void check(const Request& request) const;
  /// Ends a request that waits or runs: it takes no part in further steps, and when this returns
  /// its place in the batch and its pages are free. The next step tells its end: an event with
  /// finish_reason kCancelled and what the answer was so far, its text complete as if the answer
  /// had been cut off there by max_tokens. Returns whether there was something to end: false, and
  /// nothing happens, for a request that has ended already or was never submitted. Other requests
  /// keep their bits.
  bool cancel(RequestId request);
  /// Requests that wait or run, and those that have ended where a step has yet to tell it.
  [[nodiscard]] int64_t num_unfinished() const;
  /// Takes in what fits, runs the model once and returns the news; nothing when there is no work.
  [[nodiscard]] std::vector<Event> step();

  [[nodiscard]] const EngineStats& stats() const;

  /// The prompt's tokens as `submit` makes them: for tools and tests.
  [[nodiscard]] std::vector<int32_t> tokenize(const Request& request) const;
  /// Log-softmax inputs of the last prompt token, [vocab_size]: for tools and tests. Runs beside no
  /// other request.
  [[nodiscard]] std::vector<float> prompt_logits(const Request& request);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace heddle
