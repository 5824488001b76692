#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "heddle/core/error.h"

#include "answers/answer_style.h"
#include "bindings/arrays.h"
#include "engine/bindings/request_python.h"
#include "engine/thread/engine_thread.h"

namespace heddle::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

/// Warnings about adapters that the engine finds, until Python takes them.
class Warnings {
 public:
  void add(const std::string& what) {
    constexpr size_t kMost = 1024;
    const std::lock_guard lock(mutex_);
    if (texts_.size() < kMost) texts_.push_back(what);
  }
  [[nodiscard]] std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(texts_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

/// heddle._core.Engine: an engine with its thread. It is closed once and for all by `close`, and in
/// a child after fork, where its thread is not.
class PythonEngine {
 public:
  explicit PythonEngine(EngineOptions options) : process_(getpid()) {
    options.on_warning = [to = warnings_](const std::string& what) { to->add(what); };
    thread_ = std::make_shared<EngineThread>(options);
  }
  PythonEngine(const PythonEngine&) = delete;
  PythonEngine& operator=(const PythonEngine&) = delete;
  ~PythonEngine() { close(); }

  /// With the GIL, which guards the pointer.
  [[nodiscard]] std::shared_ptr<EngineThread> thread() const {
    HEDDLE_CHECK(thread_ != nullptr, "the engine is closed");
    HEDDLE_CHECK(process_ == getpid(), "the engine belongs to the process that made it");
    return thread_;
  }

  [[nodiscard]] std::vector<std::string> take_warnings() const { return warnings_->take(); }
  [[nodiscard]] ContentStaging& staging() const { return *staging_; }

  /// body(Engine&) in the thread of the engine, without the GIL.
  template <class Body>
  auto call(const Body& body) const {
    const std::shared_ptr<EngineThread> own = thread();
    const nb::gil_scoped_release unlocked;
    return own->call(body);
  }

  /// Also when closed, which has cancelled everything.
  [[nodiscard]] bool cancel(RequestId request) const {
    return thread_ != nullptr && process_ == getpid() && thread_->cancel(request);
  }

  void close() {
    std::shared_ptr<EngineThread> last = std::exchange(thread_, nullptr);
    if (last == nullptr) return;
    if (process_ != getpid()) {
      // The thread is not in this process: it cannot end, nor free what it may have held.
      static_cast<void>(new std::shared_ptr<EngineThread>(std::move(last)));
      return;
    }
    const nb::gil_scoped_release unlocked;
    last->stop();
    last.reset();
  }

 private:
  std::shared_ptr<Warnings> warnings_ = std::make_shared<Warnings>();  // also the engine's
  std::shared_ptr<EngineThread> thread_;
  std::unique_ptr<ContentStaging> staging_ = std::make_unique<ContentStaging>();
  pid_t process_;
};

using Pair = std::pair<int64_t, int64_t>;

EngineOptions options_of(std::string model, std::string device, int64_t max_batch,
                         int64_t num_threads, int64_t page_size, int64_t prefill_chunk,
                         int64_t max_context, int64_t kv_memory, bool prefix_cache,
                         int64_t kv_host_memory, std::string kv_cache_dir, int64_t kv_disk_memory,
                         bool kv_disk_salted, std::string admit, std::string fairness,
                         std::string kv_type, std::string weights, std::string activations,
                         std::string adapter_dir, int64_t adapter_memory,
                         int64_t adapter_host_memory, int64_t max_batch_adapters,
                         int64_t max_batch_adapter_bytes, std::string generation_config,
                         SpeculationOptions speculation) {
  return {.model_path = std::move(model),
          .device = std::move(device),
          .max_batch = narrowed("max_batch", max_batch),
          .num_threads = narrowed("num_threads", num_threads),
          .page_size = narrowed("page_size", page_size),
          .prefill_chunk = narrowed("prefill_chunk", prefill_chunk),
          .max_context = max_context,
          .kv_memory = kv_memory,
          .prefix_cache = prefix_cache,
          .kv_host_memory = kv_host_memory,
          .kv_cache_dir = std::move(kv_cache_dir),
          .kv_disk_memory = kv_disk_memory,
          .kv_disk_salted = kv_disk_salted,
          .admit = std::move(admit),
          .fairness = std::move(fairness),
          .kv_type = std::move(kv_type),
          .weights = std::move(weights),
          .activations = std::move(activations),
          .speculation = std::move(speculation),
          .adapter_dir = std::move(adapter_dir),
          .adapter_memory = adapter_memory,
          .adapter_host_memory = adapter_host_memory,
          .max_batch_adapters = max_batch_adapters,
          .max_batch_adapter_bytes = max_batch_adapter_bytes,
          .generation_config = std::move(generation_config)};
}

SpeculationOptions speculation_of(std::string method, int64_t max_drafts, const Pair& ngram,
                                  int64_t memory, std::string draft_model) {
  return {.method = std::move(method),
          .draft_model = std::move(draft_model),
          .max_drafts = narrowed("draft_tokens", max_drafts),
          .min_ngram = narrowed("draft_ngram", ngram.first),
          .max_ngram = narrowed("draft_ngram", ngram.second),
          .memory = memory};
}

/// What Python raises while the model is loaded, ctrl-C among it, ends the load.
void load(PythonEngine* self, EngineOptions options, const nb::object& on_load) {
  options.on_load = [&on_load](int64_t done_bytes, int64_t total_bytes) {
    const nb::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (!on_load.is_none()) on_load(done_bytes, total_bytes);
  };
  const nb::gil_scoped_release unlocked;
  new (self) PythonEngine(options);
}

/// Tensors of any framework and device. Those that have gaps are refused.
std::pair<std::vector<std::string>, AdapterReceipt> load_adapter(
    const PythonEngine& engine, const std::string& name, const std::string& config_json,
    const std::vector<std::string>& names, const nb::typed<nb::list, nb::object>& tensors,
    bool replace, bool switches_running) {
  const std::shared_ptr<EngineThread> own = engine.thread();
  HEDDLE_CHECK(names.size() == tensors.size(), "there are ", names.size(), " names for ",
               tensors.size(), " tensors");
  BorrowedArrays arrays;
  std::vector<AdapterTensor> given;
  for (size_t i = 0; i < names.size(); ++i) {
    given.push_back({names[i], arrays.borrow(names[i].c_str(), tensors[i], Access::kRead)});
  }
  const ExecContext ctx{.device = arrays.device(),
                        .stream = static_cast<cudaStream_t>(arrays.stream())};
  ContentStaging& staging = engine.staging();
  const nb::gil_scoped_release unlocked;
  AdapterInfo info = own->load_adapter(
      name, content_of(ctx, "adapter " + name, config_json, given, &staging), replace,
      switches_running ? RunningRequests::kSwitch : RunningRequests::kFinish);
  return {std::move(info.warnings), std::move(info.receipt)};
}

std::string detokenized(const PromptTokenizer& tokenizer, const std::vector<int64_t>& ids,
                        bool skips_special) {
  const std::shared_ptr<const TokenTexts> texts = tokenizer.texts();
  std::vector<int32_t> shown;
  for (const int64_t id : ids) {
    const int32_t token = narrowed("a token id", id);
    if (!skips_special || !texts->is_special(token)) shown.push_back(token);
  }
  return tokenizer.detokenize(shown);
}

using EventTuple = std::tuple<RequestId, std::string, std::optional<Completion>>;

/// Waits in short turns, so that ctrl-C is seen; nothing where the time is over.
std::optional<EventTuple> take(const std::shared_ptr<EventQueue>& queue,
                               std::optional<double> timeout) {
  using Clock = EventQueue::Clock;
  constexpr std::chrono::milliseconds kTurn{50};
  constexpr double kLongest = 1e9;  // seconds
  HEDDLE_CHECK(!timeout || *timeout == *timeout, "timeout is NaN");
  const double seconds = std::clamp(timeout.value_or(kLongest), 0.0, kLongest);
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds));
  for (;;) {
    std::optional<Event> event;
    const Clock::time_point turn = std::min(end, Clock::now() + kTurn);
    {
      const nb::gil_scoped_release unlocked;
      event = queue->next(turn);
    }
    if (event)
      return EventTuple{event->request, std::move(event->text), std::move(event->completion)};
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (turn == end) return std::nullopt;
  }
}

void bind_completion(nb::module_& m) {
  nb::class_<Completion>(m, "Completion")
      .def_ro("text", &Completion::text)
      .def_ro("token_ids", &Completion::token_ids)
      .def_ro("logprobs", &Completion::logprobs)
      .def_ro("top_token_ids", &Completion::top_token_ids)
      .def_ro("top_logprobs", &Completion::top_logprobs)
      .def_ro("prompt_logprobs", &Completion::prompt_logprobs)
      .def_ro("prompt_top_token_ids", &Completion::prompt_top_token_ids)
      .def_ro("prompt_top_logprobs", &Completion::prompt_top_logprobs)
      .def_ro("values", &Completion::values)
      .def_ro("labels", &Completion::labels)
      .def_ro("prompt_tokens", &Completion::prompt_tokens)
      .def_ro("cached_tokens", &Completion::cached_tokens)
      .def_ro("stop", &Completion::stop)
      .def_ro("stop_token", &Completion::stop_token)
      .def_prop_ro("adapter_switches",
                   [](const Completion& c) {
                     std::vector<std::pair<int64_t, int64_t>> places;
                     for (const auto& [position, token] : c.adapter_switches) {
                       places.emplace_back(position, token);
                     }
                     return places;
                   })
      .def_ro("earlier_digests", &Completion::earlier_digests)
      .def_prop_ro("drafts",
                   [](const Completion& c) { return Pair(c.drafts.drafted, c.drafts.accepted); })
      .def_prop_ro(
          "prediction",
          [](const Completion& c) { return Pair(c.prediction.drafted, c.prediction.accepted); })
      .def_prop_ro("finish_reason", [](const Completion& c) { return name(c.finish_reason); })
      .def_ro("adapter_digest", &Completion::adapter_digest)
      .def_ro("error", &Completion::error)
      .def_prop_ro("error_code", [](const Completion& c) -> std::optional<std::string> {
        if (c.error_code == RequestError::kNone) return std::nullopt;
        return name(c.error_code);
      });
}

}  // namespace

void bind_engine(nb::module_& m) {
  bind_completion(m);

  // Shared with the engine, which also adds events of requests that have no reader any more.
  struct Queue {
    explicit Queue(bool ends_only)
        : events(std::make_shared<EventQueue>(ends_only ? EventQueue::Tells::kEnds
                                                        : EventQueue::Tells::kAll)) {}
    std::shared_ptr<EventQueue> events;
  };
  nb::class_<Queue>(m, "EventQueue")
      .def(nb::init<bool>(), "ends_only"_a = false)
      .def(
          "take",
          [](const Queue& queue, std::optional<double> timeout) {
            return take(queue.events, timeout);
          },
          "timeout"_a = nb::none(), "(request, new text, completion at its end), None in time.")
      .def("fileno", [](const Queue& queue) { return queue.events->file_descriptor(); });

  nb::class_<PythonEngine>(m, "Engine")
      .def(
          "__init__",
          [](PythonEngine* self, std::string model, std::string device, int64_t max_batch,
             int64_t num_threads, int64_t page_size, int64_t prefill_chunk, int64_t max_context,
             int64_t kv_memory, bool prefix_cache, int64_t kv_host_memory, std::string kv_cache_dir,
             int64_t kv_disk_memory, bool kv_disk_salted, std::string admit, std::string fairness,
             std::string kv_type, std::string weights, std::string activations,
             std::string adapter_dir, int64_t adapter_memory, int64_t adapter_host_memory,
             int64_t max_batch_adapters, int64_t max_batch_adapter_bytes,
             std::string generation_config, std::string speculate, int64_t draft_tokens,
             const Pair& draft_ngram, int64_t draft_memory, std::string draft_model,
             const nb::object& on_load) {
            load(self,
                 options_of(std::move(model), std::move(device), max_batch, num_threads, page_size,
                            prefill_chunk, max_context, kv_memory, prefix_cache, kv_host_memory,
                            std::move(kv_cache_dir), kv_disk_memory, kv_disk_salted,
                            std::move(admit), std::move(fairness), std::move(kv_type),
                            std::move(weights), std::move(activations), std::move(adapter_dir),
                            adapter_memory, adapter_host_memory, max_batch_adapters,
                            max_batch_adapter_bytes, std::move(generation_config),
                            speculation_of(std::move(speculate), draft_tokens, draft_ngram,
                                           draft_memory, std::move(draft_model))),
                 on_load);
          },
          "model"_a, "device"_a, "max_batch"_a, "num_threads"_a, "page_size"_a, "prefill_chunk"_a,
          "max_context"_a, "kv_memory"_a, "prefix_cache"_a, "kv_host_memory"_a, "kv_cache_dir"_a,
          "kv_disk_memory"_a, "kv_disk_salted"_a, "admit"_a, "fairness"_a, "kv_type"_a, "weights"_a,
          "activations"_a = "", "adapter_dir"_a = "", "adapter_memory"_a = 0,
          "adapter_host_memory"_a = 0, "max_batch_adapters"_a = 0, "max_batch_adapter_bytes"_a = 0,
          "generation_config"_a = "", "speculate"_a = "", "draft_tokens"_a = 0,
          "draft_ngram"_a = Pair(), "draft_memory"_a = 0, "draft_model"_a = "",
          "on_load"_a = nb::none())
      .def("close", &PythonEngine::close)
      .def(
          "submit",
          [](const PythonEngine& engine, const Queue& queue, Request request) {
            return engine.thread()->submit(std::move(request), queue.events);
          },
          "queue"_a, "request"_a)
      .def(
          "submit_each",
          [](const PythonEngine& engine, const Queue& queue, Request request,
             const std::vector<std::pair<AdapterPairs, int64_t>>& each) {
            std::vector<RequestVariant> variants;
            for (const auto& [list, offset] : each) variants.push_back({list_of(list), offset});
            return engine.thread()->submit_each(std::move(request), std::move(variants),
                                                queue.events);
          },
          "queue"_a, "request"_a, "each"_a, "An id for each (adapters, seed offset).")
      .def(
          "cancel", [](const PythonEngine& engine, RequestId id) { return engine.cancel(id); },
          "request"_a)
      .def(
          "tokenize",
          [](const PythonEngine& engine, const Request& request) {
            const std::shared_ptr<EngineThread> own = engine.thread();
            const nb::gil_scoped_release unlocked;
            return own->tokenizer(request)->tokenize(request);
          },
          "request"_a)
      .def(
          "detokenize",
          [](const PythonEngine& engine, const Request& request, const std::vector<int64_t>& ids,
             bool skip_special_tokens) {
            const std::string text =
                detokenized(*engine.thread()->tokenizer(request), ids, skip_special_tokens);
            return nb::bytes(text.data(), text.size());
          },
          "request"_a, "token_ids"_a, "skip_special_tokens"_a,
          "The bytes of a text, maybe not UTF-8, by the tokenizer of the request's adapter.")
      .def(
          "render",
          [](const PythonEngine& engine, const Request& request) {
            const std::shared_ptr<EngineThread> own = engine.thread();
            const nb::gil_scoped_release unlocked;
            answers::AnswerStyle style;
            return own->render(request, style);
          },
          "request"_a, "The text of a conversation.")
      .def(
          "add_adapter",
          [](const PythonEngine& engine, const std::string& name, const std::string& folder,
             bool replace, bool switches_running) {
            const std::shared_ptr<EngineThread> own = engine.thread();
            const nb::gil_scoped_release unlocked;
            const auto running =
                switches_running ? RunningRequests::kSwitch : RunningRequests::kFinish;
            return own->load_adapter(name, folder, replace, running).warnings;
          },
          "name"_a, "folder"_a, "replace"_a, "switches_running"_a, "What is odd about it.")
      .def("load_adapter", &load_adapter, "name"_a, "config_json"_a, "names"_a, "tensors"_a,
           "replace"_a, "switches_running"_a,
           "What is odd about it, and its receipt without norms.")
      .def(
          "adapter_receipt",
          [](const PythonEngine& engine, const std::string& name, bool with_norms) {
            const std::shared_ptr<EngineThread> own = engine.thread();
            const nb::gil_scoped_release unlocked;
            return own->adapter_receipt(
                name, with_norms ? ReceiptNorms::kComputed : ReceiptNorms::kAsKnown);
          },
          "name"_a, "with_norms"_a, "None: its weights were not loaded yet.")
      .def(
          "keep_versions",
          [](const PythonEngine& engine, const std::string& name, int count) {
            engine.call([&](Engine& e) { e.keep_versions(name, count); });
          },
          "name"_a, "count"_a)
      .def(
          "roll_back_adapter",
          [](const PythonEngine& engine, const std::string& name, int64_t version,
             bool switches_running) {
            const auto running =
                switches_running ? RunningRequests::kSwitch : RunningRequests::kFinish;
            engine.call([&](Engine& e) { e.roll_back_adapter(name, version, running); });
          },
          "name"_a, "version"_a, "switches_running"_a)
      .def("take_warnings", &PythonEngine::take_warnings,
           "What is odd about adapters of adapter_dir that were found since the last call.")
      .def(
          "remove_adapter",
          [](const PythonEngine& engine, const std::string& name) {
            return engine.call([&](Engine& e) { return e.remove_adapter(name); });
          },
          "name"_a)
      .def("adapter_names",
           [](const PythonEngine& engine) {
             return engine.call([](Engine& e) { return e.adapter_names(); });
           })
      .def("reset_prefix_cache",
           [](const PythonEngine& engine) { engine.thread()->reset_prefix_cache(); })
      .def("stats",
           [](const PythonEngine& engine) {
             return engine.call([](Engine& e) { return e.stats(); });
           })
      .def("load",
           [](const PythonEngine& engine) {
             return engine.call([](Engine& e) { return e.load(); });
           })
      .def_prop_ro("model", [](const PythonEngine& engine) { return engine.thread()->model(); })
      .def_prop_ro("device",
                   [](const PythonEngine& engine) { return engine.thread()->options().device; })
      .def_prop_ro(
          "max_context",
          [](const PythonEngine& engine) { return engine.thread()->options().max_context; })
      .def_prop_ro("kv_memory",
                   [](const PythonEngine& engine) { return engine.thread()->options().kv_memory; });
}

}  // namespace heddle::python
